"""TCP ports of this machine's loopback interface."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """A port nobody uses now; somebody may by the time it is bound."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether it can be bound. Not for a port another process is about to bind."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_open(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
