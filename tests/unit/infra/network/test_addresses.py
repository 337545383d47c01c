"""Addresses of both protocols of the internet."""

import socket
from contextlib import closing

import pytest

from seamlessflow.infra.network.addresses import (
    address_of,
    connect_to,
    free_port,
    free_ports,
    host_and_port,
    is_free,
    is_open,
    listener_on,
    no_own_host,
    reached_here,
)
from seamlessflow.infra.network.line import Line

HOSTS = ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not socket.has_ipv6, reason=""))]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:80"),
        ("::1", "[::1]:80"),
        ("fe80::1%eth0", "[fe80::1%eth0]:80"),
        ("gpu-7.local", "gpu-7.local:80"),
    ],
)
def test_an_address_has_one_border_between_host_and_port(host: str, address: str) -> None:
    assert address_of(host, 80) == address
    assert host_and_port(address) == (host, 80)


@pytest.mark.parametrize("host", [*HOSTS, "0.0.0.0", "localhost"])
def test_a_program_may_listen_on_addresses_of_its_machine(host: str) -> None:
    assert no_own_host(host) == ""


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("[::1]", "is written without brackets here: ::1"),
        ("1.2.3.4", "is not an address of this machine"),
        ("\u00fcn\u00ef.invalid", "is no name that this machine knows"),
        ("a..b", "is no name of a host"),
        ("127.0.0.1:80", "is no name that this machine knows"),
    ],
)
def test_a_host_of_no_machine_here_is_told_from_others(host: str, reason: str) -> None:
    assert no_own_host(host).startswith(reason)


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("::1", "::1"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_all_interfaces_of_a_machine_are_reached_by_loopback(host: str, reached: str) -> None:
    assert reached_here(host) == reached


@pytest.mark.parametrize("host", HOSTS)
def test_a_line_is_made_to_the_address_of_a_listener(host: str) -> None:
    with listener_on(host) as listener:
        address = address_of(host, listener.getsockname()[1])
        with closing(Line(connect_to(address, 10))) as line:
            other = Line(listener.accept()[0])
            other.send("come")
            assert line.receive(10) == "come"
            assert line.place == address
            other.close()


def test_ports_that_are_asked_for_together_differ() -> None:
    ports = free_ports(100)
    assert len(set(ports)) == 100
    assert all(is_free(port) for port in ports)
    assert max(ports) < 32_768


@pytest.mark.parametrize("host", HOSTS)
def test_a_port_is_looked_at_on_its_own_host(host: str) -> None:
    port = free_port()
    assert is_free(port, host)
    with listener_on(host) as listener:
        taken = listener.getsockname()[1]
        assert is_open(taken, host)
        assert not is_free(taken, host)
    assert not is_open(taken, host)
