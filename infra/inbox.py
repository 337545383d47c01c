"""Queue from other threads to a process's main thread, with a limit to reading ahead.

Kafka readers call `put`, which waits while the inbox is full. So a slow main thread slows them down
instead of filling the memory. Everything else is posted and never waits. It comes from threads that
must go on (the producer's, an engine's), or frees the main thread itself.
"""

import threading
from collections import deque
from typing import Generic, TypeVar

from seamlessflow.infra.kafka.client import Received

T = TypeVar("T")

READ_AHEAD_RECORDS = 4_096
"""A rebuild reads up to 500 records at once: eight batches keep the main thread busy."""

READ_AHEAD_BYTES = 64_000_000
"""4,096 records with long message histories would take gigabytes."""


class Inbox(Generic[T]):
    """Batches of records and items of type T, first in, first out.

    `get` and `take` are for the main thread, everything else for any thread. Both raise the error
    that a thread ended with, after they returned all that came before it.
    """

    def __init__(
        self, limit: int = READ_AHEAD_RECORDS, limit_bytes: int = READ_AHEAD_BYTES
    ) -> None:
        # Not a SimpleQueue. In CPython 3.11 its `get` with a timeout may wait for ever if a signal
        # handler outlasts the timeout.
        lock = threading.Lock()
        self._came = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._items: deque[tuple[int, int, list[Received] | T | BaseException]] = deque()
        """Each item, with the count and bytes of its records if they are limited."""
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._records = self._bytes = 0
        self._on_hold = False
        self._closed = False

    def put(self, batch: list[Received]) -> None:
        """Add a batch once the inbox holds less than its limits; drop it if the inbox closes.

        The main thread never calls it: that thread is what makes room.
        """
        with self._room:
            self._room.wait_for(self._has_room)
            if not self._closed:
                self._append(batch, len(batch), sum(received.size for received in batch))

    def post(self, item: list[Received] | T) -> None:
        """Add an item at once, even to a full inbox."""
        with self._came:
            self._append(item)

    def fail(self, error: BaseException) -> None:
        """Let the main thread raise the error that a thread ended with."""
        with self._came:
            self._append(error)

    def get(self, timeout_s: float) -> list[Received] | T | None:
        """Return the next item, or None if none comes within `timeout_s`."""
        with self._came:
            if not self._came.wait_for(lambda: self._items, timeout_s):
                return None
            return self._pop()

    def take(self, timeout_s: float) -> list[list[Received] | T]:
        """Return all items that are there, after waiting up to `timeout_s` for the first."""
        with self._came:
            taken: list[list[Received] | T] = []
            self._came.wait_for(lambda: self._items, timeout_s)
            while self._items and not (taken and isinstance(self._items[0][-1], BaseException)):
                taken.append(self._pop())
            return taken

    def hold(self, on: bool) -> None:
        """Make `put` wait even if there is room, until this is called with False."""
        with self._room:
            self._on_hold = on
            self._room.notify_all()

    def close(self) -> None:
        """Drop what is put from now on, and release the threads that wait for room."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    def _has_room(self) -> bool:
        room = self._records < self._limit and self._bytes < self._limit_bytes
        return self._closed or (room and not self._on_hold)

    def _append(
        self, item: list[Received] | T | BaseException, records: int = 0, size: int = 0
    ) -> None:
        self._records += records
        self._bytes += size
        self._items.append((records, size, item))
        self._came.notify()

    def _pop(self) -> list[Received] | T:
        records, size, item = self._items.popleft()
        if records:
            self._records -= records
            self._bytes -= size
            self._room.notify()
        if isinstance(item, BaseException):
            raise item
        return item
