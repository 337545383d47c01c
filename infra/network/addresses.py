"""Addresses of other processes, host:port, connections to them, and URLs of storages."""

import socket
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator


def _without_password(url: str) -> str:
    if urlsplit(url).password is not None:
        raise ValueError(
            "no password may be in it, since settings are written to logs and manifests: set the "
            "storage's own variables or files, such as AWS_SECRET_ACCESS_KEY"
        )
    return url


StorageUrl = Annotated[str, AfterValidator(_without_password)]
"""URL of a storage that fsspec knows, as a setting; refused with a password in it."""


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address, e.g. "10.0.0.7:4321". Raises `ValueError` for any other."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def connect_to(address: str, limit_s: float) -> socket.socket:
    """Connect to the process at an address. Raises `OSError` and `ValueError`."""
    return socket.create_connection(host_and_port(address), limit_s)
