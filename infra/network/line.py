"""A line between two workers: values as JSON, each in one line of text, over TCP.

A gang meets over such lines (`trainer/backends/meeting.py`), and a clock's gang works over them.
Rollout processes ask training processes for weights over them (`infra/weights/from_trainer`).
"""

import json
import select
import socket
import time
from contextlib import suppress
from typing import Any

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import address_of

ANSWER_S = 6 * 3600.0
"""Limit between two values: as long as a trainer's call may take."""
LOOK_S = 0.2
"""Seconds between two looks at whether the process must end."""
_MOST_BYTES = 1 << 26


class LineLost(SeamlessFlowError):
    """The line to another worker has ended."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the line to another worker ended: {reason}")


class Line:
    """A connection to another worker. `close` may be called from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(LOOK_S)
        self._connection = connection
        host, port, *_ = connection.getpeername()
        self.place = address_of(host, port)
        """Address of the other side, host:port."""
        self.here = str(connection.getsockname()[0])
        """This side's address, without a port."""
        self._read = bytearray()

    def send(self, value: Any) -> None:
        """Send a value. Raises `LineLost`."""
        try:
            self._connection.sendall(f"{json.dumps(value)}\n".encode())
        except OSError as error:
            raise LineLost(str(error)) from error

    def receive(self, limit_s: float = ANSWER_S, stopping: Stopping = never) -> Any:
        """Wait for the next value. Raises `LineLost`, at once when `stopping`."""
        deadline = time.monotonic() + limit_s
        try:
            while (end := self._read.find(b"\n")) < 0:
                if stopping() or time.monotonic() > deadline:
                    raise LineLost(f"no value in {limit_s:g} s, or the process ends")
                self._read += self._more()
            line = self._read[:end]
            self._read = self._read[end + 1 :]
            return json.loads(line)
        except (OSError, ValueError) as error:
            raise LineLost(str(error)) from error

    @property
    def lost(self) -> bool:
        """True if the other side has closed it. Only for the thread that receives values."""
        try:
            self._connection.setblocking(False)
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._connection.settimeout(LOOK_S)

    def ends(self, limit_s: float) -> bool:
        """Return whether the other side ends it within the limit. From any thread.

        Values may still be unread, and another thread may wait for them.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLRDHUP)
        return bool(poll.poll(limit_s * 1000))

    def close(self) -> None:
        """End the line, and any wait for its next value."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _more(self) -> bytes:
        """Return the bytes that have come; none if nothing comes for a moment."""
        try:
            read = self._connection.recv(1 << 16)
        except TimeoutError:
            return b""
        if not read:
            raise LineLost("it was closed")
        if len(self._read) + len(read) > _MOST_BYTES:
            raise ValueError("what comes is no value of this project")
        return read
