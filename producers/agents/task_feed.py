"""Reads `tasks` in a thread of its own and hands over as many as there are places.

A task is committed before it is handed over: one that was begun is never begun again by this
consumer group, and one that was lost is issued anew by pacing at its deadline.
"""

import threading
from collections.abc import Callable
from typing import Any

from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.settings import KafkaSettings
from producers.agents.backlog import Backlog
from schemas.records import Task
from schemas.topics import TASKS

_CLIENT_ID = "agents"
_READ_AHEAD = 1_000
_POLL_S = 0.1
_BUSY_POLL_S = 0.01
_LONGEST_WAIT_MS = 86_400_000


class Places:
    """How many more agents may be started. Taken by the feed's thread, given back by the loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition()

    def free(self, timeout_s: float = 0) -> int:
        """Free places, as soon as there are any, else 0 after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0, timeout_s)
            return self._free

    def take(self, count: int) -> None:
        """Takes places that `free` has named."""
        with self._changed:
            self._free -= count

    def give_back(self) -> None:
        """A place is free again."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()


class TaskFeed:
    """Hands tasks to `start`, which is called in the feed's thread and returns at once."""

    def __init__(
        self, settings: KafkaSettings, group: str, places: Places, start: Callable[[Task], object]
    ) -> None:
        self._settings = settings
        self._group = group
        self._places = places
        self._start = start
        self._backlog = Backlog()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="task feed")

    def begin(self) -> None:
        """Joins the group and goes on until `end`."""
        self._thread.start()

    def end(self) -> None:
        """Hands over nothing more and leaves the group; waits for both."""
        self._ended.set()
        self._thread.join()

    def _serve(self) -> None:
        letters = Producer(self._settings, f"{_CLIENT_ID}-dead-letters")
        options: dict[str, Any] = {"max.poll.interval.ms": _LONGEST_WAIT_MS}
        reader = Reader(
            self._settings, _CLIENT_ID, group=self._group, dead_letters=letters, **options
        )
        try:
            reader.subscribe([TASKS.name], on_revoked=self._backlog.drop)
            while not self._ended.is_set():
                self._read(reader)
                self._hand_over(reader)
        finally:
            reader.close()
            letters.close()

    def _read(self, reader: Reader) -> None:
        if len(self._backlog) < _READ_AHEAD:
            self._backlog.add(reader.poll(_BUSY_POLL_S if len(self._backlog) else _POLL_S))
        else:
            self._places.free(_POLL_S)

    def _hand_over(self, reader: Reader) -> None:
        taken, offsets = self._backlog.take(self._places.free())
        if not taken or self._ended.is_set():
            return
        reader.commit(offsets)
        self._places.take(len(taken))
        for item in taken:
            if isinstance(item.record, Task):
                self._start(item.record)
            else:
                self._places.give_back()
