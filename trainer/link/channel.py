"""A connection between the trainer and a rank: whole messages in both directions."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from seamlessflow.trainer.link.messages import Arrays, Message, encoded, received

_EMPTY: Arrays = {}
_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
"""Seconds, and milliseconds for the last; not every system has all of them."""


class ChannelClosed(ConnectionError):
    """The end of a stream."""


class Channel:
    """A socket, and a thread that delivers what comes from it.

    `deliver` and `lost` run on that thread; `lost` once, when the other side is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Each message is sent whole, so waiting for more of it only delays.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine that vanishes closes nothing: the kernel asks after it, and gives it up.
        for name, value in _ALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._sending = threading.Lock()

    def send(self, message: Message, arrays: Arrays = _EMPTY) -> None:
        """Send a message. Raises `OSError` if the other side is gone."""
        data = encoded(message, arrays)
        with self._sending:
            self._connection.sendall(data)

    def receive(self, limit_s: float) -> tuple[Message, Arrays]:
        """Return the first message. Raises `OSError` or `ValueError`. Not behind `start`."""
        self._connection.settimeout(limit_s)
        try:
            return received(self._exactly)
        finally:
            self._connection.settimeout(None)

    def start(
        self, deliver: Callable[[Message, Arrays], None], lost: Callable[[str], None]
    ) -> None:
        """Begin to deliver; `lost` gets the reason for which no more messages come."""

        def run() -> None:
            try:
                while True:
                    deliver(*received(self._exactly))
            except (OSError, ValueError) as error:
                lost(str(error))

        self._thread = threading.Thread(target=run, name="gang link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the connection, also for a thread that waits for it."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            size = self._connection.recv_into(view)
            if size == 0:
                raise ChannelClosed("the connection ended")
            view = view[size:]
        return bytes(data)
