"""TCP ports of this machine, by default of its loopback interface."""

import ipaddress
import socket

HOST = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or address, is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def free_port() -> int:
    """Return a port that is free now; another process may take it before it is bound."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether the port can be bound. Wrong for a port that is about to be bound."""
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
