"""Ctrl-C and SIGTERM as an event that ends every wait of a command."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from infra.errors import KafkaUnavailable

_ENDING = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """The user asked to stop. Not an `Exception`: only the `with` blocks of processes handle it."""

    status: ClassVar[int] = 130
    """Exit status of a command that it ends, as a shell's after Ctrl-C."""


class Stop:
    """Event that a signal sets."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask all waits to end."""
        self._event.set()

    @property
    def asked(self) -> bool:
        """True once the user asked to stop."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Interrupted` if the user asked to stop."""
        if self.asked:
            raise Interrupted

    def wait(self, timeout_s: float) -> None:
        """Wait for `timeout_s`. Raises `Interrupted` as soon as the user asks to stop."""
        if self._event.wait(timeout_s):
            raise Interrupted


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Return a stop that the first signal sets in this block; a second signal ends the process.

    A wait for Kafka that the stop ended is `Interrupted` too.
    """
    stop = Stop()

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, handle) for number in _ENDING}
    try:
        yield stop
    except KafkaUnavailable:
        stop.check()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
