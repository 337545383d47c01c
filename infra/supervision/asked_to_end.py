"""Calls for signal handlers: made in a thread, since a handler runs in the middle of anything.

A handler that sets an event, for example, would wait for ever if it interrupted `Event.wait` while
that holds the event's lock.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def beside_the_handler(call: Callable[[int], object]) -> Iterator[Callable[[int], None]]:
    """Return a function for a handler: it lets a thread make the call with the signal's number."""
    asked: SimpleQueue[int | None] = SimpleQueue()  # its `put` may interrupt another one

    def answer() -> None:
        while (number := asked.get()) is not None:
            call(number)

    thread = threading.Thread(target=answer, name="asked to end", daemon=True)
    thread.start()
    try:
        yield asked.put
    finally:
        asked.put(None)
        thread.join()
