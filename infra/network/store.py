"""Stores in which a process group's ranks find each other. Needs torch.

The socket is made here, because a store's own socket would listen on all interfaces.
"""

from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from seamlessflow.infra.network.addresses import address_of, host_and_port, listener_on


def store_at(host: str, limit: timedelta) -> tuple[TCPStore, str]:
    """Return a store on a free port of this host, and its address.

    `limit` applies to the connection and to each answer.
    """
    listener = listener_on(host)
    port = listener.getsockname()[1]
    return _store(host, port, limit, listener.detach()), address_of(host, port)


def store_of(address: str, limit: timedelta) -> TCPStore:
    """Return another process's store at an address. Raises `RuntimeError`, `ValueError`."""
    return _store(*host_and_port(address), limit)


def _store(host: str, port: int, limit: timedelta, listener: int | None = None) -> TCPStore:
    return TCPStore(
        host,
        port,
        is_master=listener is not None,
        timeout=limit,
        wait_for_workers=False,
        master_listen_fd=listener,
    )
