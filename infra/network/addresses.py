"""Process addresses (host:port) and connections to them, free ports, and storage URLs."""

import errno
import ipaddress
import socket
from contextlib import suppress
from itertools import islice
from secrets import randbelow
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104
"""Hosts that stand for all interfaces of a machine, each with one of these interfaces."""

HOST = "127.0.0.1"
_FOR_SERVERS = range(20_000, 32_768)
"""Ports below those that Linux gives to clients (`net.ipv4.ip_local_port_range`)."""


def _without_password(url: str) -> str:
    if urlsplit(url).password is not None:
        raise ValueError(
            "no password may be in it, since settings are written to logs and manifests: set the "
            "storage's own variables or files, such as AWS_SECRET_ACCESS_KEY"
        )
    return url


StorageUrl = Annotated[str, AfterValidator(_without_password)]
"""A setting: the URL of a storage that fsspec knows; refused with a password in it."""


def address_of(host: str, port: int) -> str:
    """Return a port's address, e.g. "10.0.0.7:4321" or "[::1]:4321"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address. Raises `ValueError` for a text that is no address."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def reached_here(host: str) -> str:
    """Return the host by which this machine reaches a program that listens on `host`."""
    return _LOOPBACK.get(host, host)


def listener_on(host: str) -> socket.socket:
    """Return a socket that listens on a free port of `host`, by IPv4 or IPv6.

    Raises `OSError`.
    """
    family, *_, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    return socket.create_server(place[:2], family=family)


def no_own_host(host: str) -> str:
    """Return why no program on this machine can listen on a host; empty if one can."""
    if host.startswith("["):
        return f"is written without brackets here: {host.strip('[]')}"
    try:
        listener_on(host).close()
    except socket.gaierror as error:
        return f"is no name that this machine knows ({error.strerror})"
    except UnicodeError:
        return "is no name of a host"
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return "is not an address of this machine"
        return f"cannot be listened on ({error.strerror})"
    return ""


def connect_to(address: str, limit_s: float) -> socket.socket:
    """Connect to the process at an address. Raises `OSError` and `ValueError`."""
    return socket.create_connection(host_and_port(address), limit_s)


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or address, is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def free_port() -> int:
    """Return a port that is free now; another process may take it before it is bound."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now; another process may take one in the meantime.

    Linux gives none of them to a client while its server is away.
    """
    first = randbelow(len(_FOR_SERVERS))
    ports = (*_FOR_SERVERS[first:], *_FOR_SERVERS[:first])
    return list(islice(filter(_binds, ports), count))


def _binds(port: int) -> bool:
    """Return whether the port can be bound, and is not kept for a connection that has ended."""
    with socket.socket() as probe, suppress(OSError):
        probe.bind((HOST, port))
        return True
    return False


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether the port can be bound now; another process may be about to bind it."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def is_open(port: int, host: str = HOST) -> bool:
    """Return whether a process accepts connections on the port."""
    with socket.socket(_family(host)) as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
