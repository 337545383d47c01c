"""Addresses of other processes, host:port, connections to them, and URLs of storages."""

import socket
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104
"""Hosts that are all interfaces of a machine, with one of these."""


def _without_password(url: str) -> str:
    if urlsplit(url).password is not None:
        raise ValueError(
            "no password may be in it, since settings are written to logs and manifests: set the "
            "storage's own variables or files, such as AWS_SECRET_ACCESS_KEY"
        )
    return url


StorageUrl = Annotated[str, AfterValidator(_without_password)]
"""URL of a storage that fsspec knows, as a setting; refused with a password in it."""


def address_of(host: str, port: int) -> str:
    """Return the address of a port, e.g. "10.0.0.7:4321" or "[::1]:4321"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address. Raises `ValueError` for a text that is none."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def reached_here(host: str) -> str:
    """Return the host by which this machine reaches a program that listens on `host`."""
    return _LOOPBACK.get(host, host)


def listener_on(host: str) -> socket.socket:
    """Return a socket that listens on a free port of `host`, by either protocol of the internet.

    Raises `OSError`.
    """
    family, *_, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    return socket.create_server(place[:2], family=family)


def connect_to(address: str, limit_s: float) -> socket.socket:
    """Connect to the process at an address. Raises `OSError` and `ValueError`."""
    return socket.create_connection(host_and_port(address), limit_s)
