"""The lines between the workers of a gang of clocks: values as JSON over TCP.

The worker with rank 0 listens at `trainer.rendezvous`, each other one calls there. The first says
the lengths of a step's sequences, or when it rests the number of the step that is over; the others
answer with the seconds that their part took. The loss of one ends all, as in the process group of
torch.
"""

import json
import socket
import time
from contextlib import suppress
from typing import Any

from infra.errors import SeamlessFlowError
from infra.kafka.outage import Stopping

JOIN_S = 600.0
"""Limit for the workers to find each other."""
ANSWER_S = 6 * 3600.0
"""Limit between two values: as long as a call of the trainer may take."""
_HELLO_S = 10.0
_LOOK_S = 0.2


class WorkersAbsent(SeamlessFlowError):
    """Workers of a gang that did not come together in time."""

    lasting = False

    def __init__(self, rendezvous: str, reason: str) -> None:
        self.rendezvous = rendezvous
        self.reason = reason
        super().__init__(f"the gang did not meet at {rendezvous} in {JOIN_S:g} s: {reason}")


class LineLost(SeamlessFlowError):
    """The end of the line to another worker of the gang."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the line to another worker of the gang ended: {reason}")


class GangLine:
    """A connection to another worker. `close` may be called from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")

    def send(self, value: Any) -> None:
        """Send a value. Raises `LineLost`."""
        try:
            self._connection.sendall(f"{json.dumps(value)}\n".encode())
        except OSError as error:
            raise LineLost(str(error)) from error

    def receive(self, limit_s: float = ANSWER_S) -> Any:
        """Wait for the next value. Raises `LineLost`."""
        self._connection.settimeout(limit_s)
        try:
            if line := self._lines.readline():
                return json.loads(line)
        except (OSError, ValueError) as error:
            raise LineLost(str(error)) from error
        raise LineLost("it was closed")

    def close(self) -> None:
        """End the line, and a wait for its next value."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._connection.close()


def gathered(rendezvous: str, others: int, stopping: Stopping) -> list[GangLine]:
    """Return the lines to the workers that have the `others` of the gang's devices.

    Waits for them at `rendezvous`, host:port. Raises `OSError`, and `WorkersAbsent`, at once when
    `stopping`.
    """
    found: list[GangLine] = []
    if not others:
        return found
    deadline = time.monotonic() + JOIN_S
    with socket.create_server(_address(rendezvous)) as listener:
        listener.settimeout(_LOOK_S)
        while others > 0:
            if stopping() or time.monotonic() > deadline:
                raise WorkersAbsent(rendezvous, f"{others} devices are missing")
            try:
                line = GangLine(listener.accept()[0])
            except TimeoutError:
                continue
            if devices := _devices(line):
                found.append(line)
                others -= devices
    return found


def joined(rendezvous: str, own: int, stopping: Stopping) -> GangLine:
    """Return the line to the first rank, which is told the number of `own` devices.

    Raises `WorkersAbsent`, at once when `stopping`.
    """
    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            line = GangLine(socket.create_connection(_address(rendezvous), _HELLO_S))
            line.send(own)
            return line
        except OSError as error:
            # It does not listen yet.
            if stopping() or time.monotonic() > deadline:
                raise WorkersAbsent(rendezvous, str(error)) from error
            time.sleep(_LOOK_S)


def _devices(line: GangLine) -> int:
    """Return the devices that a caller says it has; close the line of any other program."""
    with suppress(LineLost):
        if isinstance(said := line.receive(_HELLO_S), int):
            return said
    line.close()
    return 0


def _address(rendezvous: str) -> tuple[str, int]:
    host, _, port = rendezvous.rpartition(":")
    return host, int(port)
