"""Addresses of other processes, host:port, and connections to them."""

import socket


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address, e.g. "10.0.0.7:4321". Raises `ValueError` for any other."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def connect_to(address: str, limit_s: float) -> socket.socket:
    """Connect to the process at an address. Raises `OSError` and `ValueError`."""
    return socket.create_connection(host_and_port(address), limit_s)
