"""Ctrl-C, SIGTERM and the terminal's end as an event that ends every wait in a command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.host import asked_to_end

_SHOW_CURSOR = "\r\x1b[?25h"
"""Text that brings a terminal its cursor back, which a display has hidden."""


class Interrupted(BaseException):
    """The user asked to stop. Not an `Exception`: only the `with` blocks of processes handle it."""

    status: ClassVar[int] = 130
    """Exit status for a command that it ends, as in a shell after Ctrl-C."""


class Stop:
    """Event that a signal sets."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._asked = False

    def note(self) -> None:
        """Note that the user asked to stop; a handler may do so. `set` ends the waits."""
        self._asked = True

    def set(self) -> None:
        """Ask all waits to end."""
        self.note()
        self._event.set()

    @property
    def asked(self) -> bool:
        """True once the user asked to stop."""
        return self._asked

    def check(self) -> None:
        """Raise `Interrupted` if the user asked to stop."""
        if self.asked:
            raise Interrupted

    def wait(self, timeout_s: float) -> None:
        """Wait for `timeout_s`. Raises `Interrupted` as soon as the user asks to stop."""
        if self._event.wait(timeout_s):
            raise Interrupted


@contextmanager
def stoppable(left: str = "") -> Iterator[Stop]:
    """Yield a stop that the first signal sets in this block; a second signal ends the process.

    Before that it prints `left`: what the process leaves behind. If `left` is set, the first signal
    also prints a line. If the stop ends a wait for Kafka, that is `Interrupted` too.
    """
    stop = Stop()

    def handle(number: int) -> None:
        signal.signal(number, end_at_once if left else signal.SIG_DFL)
        stop.note()
        if left:
            _say("ending in order; the same signal once more ends at once")

    def end_at_once(number: int, _: object) -> None:
        _say(f"ended at once; {left}", _SHOW_CURSOR)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with asked_to_end(handle, lambda _: stop.set()):
        try:
            yield stop
        except KafkaUnavailable:
            stop.check()
            raise


def _say(line: str, on_terminal: str = "") -> None:
    # Not by print: the signal may have come while this thread was printing.
    error = sys.stderr.fileno()
    before = on_terminal if os.isatty(error) else ""
    with suppress(OSError):
        os.write(error, f"{before}seamlessflow: {line}\n".encode())
