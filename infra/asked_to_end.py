"""Signals that ask a process to end, and the calls that they make.

A handler runs in the middle of anything. Suppose it sets an event, and interrupts `Event.wait`
while that holds the event's lock. It would wait for ever. A thread therefore makes such calls.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


def ending_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to end.

    The signal that its terminal has gone is one, unless the process was started to outlive that, as
    by nohup.
    """
    hung_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hung_up else [])]


@contextmanager
def asked_to_end(
    at_once: Callable[[int], object], beside: Callable[[int], object]
) -> Iterator[None]:
    """Call both with the number of a signal: `at_once` in its handler, `beside` in a thread.

    Restores the handlers at the end.
    """
    asked: SimpleQueue[int | None] = SimpleQueue()  # its `put` may interrupt another one

    def handle(number: int, _: object) -> None:
        at_once(number)
        asked.put(number)

    def answer() -> None:
        while (number := asked.get()) is not None:
            beside(number)

    thread = threading.Thread(target=answer, name="asked to end", daemon=True)
    thread.start()
    before = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(None)
        thread.join()
