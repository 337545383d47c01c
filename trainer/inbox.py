"""What the readers' threads hand to the loop, in one queue, with a brake for sessions."""

import threading
from collections.abc import Iterator
from queue import Empty, Queue

from infra.kafka.client import Received


class Inbox:
    """Filled by threads, emptied by the loop. A thread's error is raised where it is emptied."""

    def __init__(self) -> None:
        # A SimpleQueue whose wait a signal handler outlasts waits on for ever (CPython 3.11).
        self._items: Queue[list[Received] | BaseException] = Queue()
        self._open = threading.Event()
        self._open.set()

    def put(self, received: list[Received]) -> None:
        """Never waits."""
        self._items.put(received)

    def put_when_open(self, received: list[Received]) -> None:
        """Waits while the brake is on."""
        self._open.wait()
        self._items.put(received)

    def fail(self, error: BaseException) -> None:
        """A thread died of this."""
        self._items.put(error)

    def brake(self, on: bool) -> None:
        """Whether `put_when_open` is to wait."""
        if on:
            self._open.clear()
        else:
            self._open.set()

    def take(self, timeout_s: float) -> Iterator[Received]:
        """All that is there, waiting up to `timeout_s` for the first. Raises a thread's error."""
        wait_s = timeout_s
        while True:
            try:
                item = self._items.get(timeout=wait_s) if wait_s else self._items.get_nowait()
            except Empty:
                return
            if isinstance(item, BaseException):
                raise item
            yield from item
            wait_s = 0.0
