"""Feed of tasks: reads `tasks` in a thread of its own and starts as many agents as are allowed.

A task's offset is committed before the task is started: this consumer group never starts it a
second time. If a process dies with a started task, the scheduler issues it again at its deadline.
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


class AgentCapacity:
    """Count of the agents that may still be started.

    The feed's thread reserves them, the event loop releases them.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition()

    def free(self, timeout_s: float = 0) -> int:
        """Return how many agents may be started; wait up to `timeout_s` while it is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0, timeout_s)
            return self._free

    def reserve(self, count: int) -> None:
        """Count `count` agents as running; at most as many as `free` returned."""
        with self._changed:
            self._free -= count

    def release(self) -> None:
        """Count one agent as ended."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()


class TaskFeed:
    """Calls `start` with each task, in the feed's thread; `start` must return at once."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        capacity: AgentCapacity,
        start: Callable[[Task], object],
    ) -> None:
        self._settings = settings
        self._group = group
        self._capacity = capacity
        self._start = start
        self._backlog = Backlog()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="task feed")

    def begin(self) -> None:
        """Join the Kafka consumer group and start tasks until `end`."""
        self._thread.start()

    def end(self) -> None:
        """Start no more tasks, leave the Kafka consumer group, and wait for both."""
        self._ended.set()
        self._thread.join()

    def _serve(self) -> None:
        letters = Producer(self._settings, f"{_CLIENT_ID}-dead-letters")
        # While all agents are busy the feed does not poll; Kafka must not take that for a failure.
        options: dict[str, Any] = {"max.poll.interval.ms": _LONGEST_WAIT_MS}
        reader = Reader(
            self._settings, _CLIENT_ID, group=self._group, dead_letters=letters, **options
        )
        try:
            reader.subscribe([TASKS.name], on_revoked=self._backlog.drop)
            while not self._ended.is_set():
                self._read(reader)
                self._start_tasks(reader)
        finally:
            reader.close()
            letters.close()

    def _read(self, reader: Reader) -> None:
        if len(self._backlog) < _READ_AHEAD:
            self._backlog.add(reader.poll(_BUSY_POLL_S if len(self._backlog) else _POLL_S))
        else:
            self._capacity.free(_POLL_S)

    def _start_tasks(self, reader: Reader) -> None:
        popped, offsets = self._backlog.pop(self._capacity.free())
        if not popped or self._ended.is_set():
            return
        reader.commit(offsets)  # before the start: see the module's docstring
        self._capacity.reserve(len(popped))
        for item in popped:
            if isinstance(item.record, Task):
                self._start(item.record)
            else:
                self._capacity.release()
