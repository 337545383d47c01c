"""What other threads have for the manager's main thread: records, things to do there, errors."""

import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from infra.kafka.client import Received

Item = list[Received] | Callable[[], None] | BaseException
_LONGEST_S = 0.05
"""Deadlines and commits are looked at this often, however much comes in."""


class Inbox:
    """`put` may be called from any thread, everything else from the main thread."""

    def __init__(self) -> None:
        # A SimpleQueue whose wait a signal handler outlasts waits on for ever (CPython 3.11).
        self._items: Queue[Item] = Queue()
        self.put = self._items.put

    def batches(self, timeout_s: float) -> Iterator[list[Received]]:
        """What has come, or comes first within the time; for `_LONGEST_S` at most."""
        batch = self.take(timeout_s)
        until = time.monotonic() + _LONGEST_S
        while batch is not None:
            yield batch
            batch = self.take(0) if time.monotonic() < until else None

    def take(self, timeout_s: float) -> list[Received] | None:
        """The next records; none where something else came and was done, None after the time.

        Raises the error that another thread ended with.
        """
        try:
            item = self._items.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(item, list):
            return item
        if isinstance(item, BaseException):
            raise item
        item()
        return []
