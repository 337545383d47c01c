"""Ctrl-C and SIGTERM as an event that everything waits with."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """The user asked to end; everything that was started is still to be ended in order."""


class Stop:
    """Set once somebody asked to end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Asks to end."""
        self._event.set()

    def check(self) -> None:
        """Raises `Interrupted` if asked to end."""
        if self._event.is_set():
            raise Interrupted

    def wait(self, timeout_s: float) -> None:
        """Waits. Raises `Interrupted` as soon as asked to end."""
        if self._event.wait(timeout_s):
            raise Interrupted


@contextmanager
def stoppable() -> Iterator[Stop]:
    """While the block runs, a first signal sets the stop; a second one ends the process at once."""
    stop = Stop()

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, handle) for number in _ENDING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
