"""Task feed: reads `tasks` in its own thread and starts as many agents as are allowed.

A task's start is committed before the task is started: this Kafka consumer group never starts it a
second time. If a process dies with started tasks, the next owner of their partitions reads them
again. They are marked as left behind, and the owner ends their sessions.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.infra.errors import DeliveryFailed, KafkaUnavailable
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.outage import COMMIT_S, WITHOUT_LIMIT
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.group import membership
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.agents.backlog import Backlog, Place, Progress, place_of
from seamlessflow.schemas.records import ProgressStalled, Task
from seamlessflow.schemas.topics import CONTROL, TASKS

_CLIENT_ID = "agents"
_READ_AHEAD = 1_000
_POLL_S = 0.1
_BUSY_POLL_S = 0.01
_LONGEST_WAIT_MS = 86_400_000
_COMMIT_EVERY_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A task to run now."""

    task: Task
    place: Place
    left_behind: bool = False
    """True if a process that has ended started it and did not report its end."""


class AgentCapacity:
    """Count of agents that may still be started, and the tasks that have ended.

    The feed's thread reserves agents, the event loop releases them.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._ended: list[Place] = []
        self._changed = threading.Condition()

    def free(self, timeout_s: float = 0) -> int:
        """Return how many agents may be started; while it is 0, wait up to `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0, timeout_s)
            return self._free

    def reserve(self, count: int) -> None:
        """Count `count` agents as running; at most as many as `free` returned."""
        with self._changed:
            self._free -= count

    def release(self, place: Place) -> None:
        """Count the agent of the task at `place` as ended."""
        with self._changed:
            self._free += 1
            self._ended.append(place)
            self._changed.notify_all()

    def take_ended(self) -> list[Place]:
        """Return the tasks that ended since the last call."""
        with self._changed:
            ended = self._ended
            self._ended = []
            return ended


class TaskFeed:
    """Reader of tasks that calls `start` with each, and `drain` at its end, in the feed's thread.

    `start` must return at once; `drain` returns when the tasks are over or are given up.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        capacity: AgentCapacity,
        metrics: Metrics,
        start: Callable[[StartedTask], object],
        drain: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._group = group
        self._capacity = capacity
        self._metrics = metrics
        self._start = start
        self._drain = drain
        self._backlog = Backlog()
        self._assigned: list[LogPartition] = []
        self._changed: set[LogPartition] = set()
        self._committed_s = 0.0
        self._writer: Producer | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="task feed")

    def begin(self) -> None:
        """Join the Kafka consumer group and start tasks until `end`."""
        self._thread.start()

    def report(self, report: ProgressStalled) -> None:
        """Write a report to `control`; the feed goes on if Kafka does not take it."""
        if self._writer is not None:
            self._writer.send(CONTROL.name, report, on_delivery=_log_lost)

    def end(self) -> None:
        """Start no more tasks, drain, leave the Kafka consumer group, and wait for all that.

        Tasks that are not over by then are left to the next owner.
        """
        self._ended.set()
        self._thread.join()

    def _serve(self) -> None:
        letters = self._writer = Producer(self._settings, f"{_CLIENT_ID}-dead-letters")
        # While all agents are busy the feed does not poll; Kafka must not take that for a failure.
        options: dict[str, Any] = {"max.poll.interval.ms": _LONGEST_WAIT_MS}
        options |= membership(self._settings, self._group, TASKS, None, self._ended.is_set)
        dead = DeadLetters(self._settings, letters, self._ended.is_set)
        reader = Reader(
            self._settings,
            _CLIENT_ID,
            group=self._group,
            rules=ReadingRules(bury=dead.bury, folds=True),
            stopping=self._ended.is_set,
            **options,
        )
        self._metrics.watch(reader)

        def assigned(partitions: list[LogPartition]) -> None:
            dead.look_anew(partitions)
            self._assigned.extend(partitions)

        try:
            reader.subscribe(
                [TASKS.name],
                on_assigned=assigned,
                on_revoked=lambda gone: self._hand_over(reader, self._backlog.drop(gone)),
            )
            while not self._ended.is_set():
                self._read(reader)
                self._start_tasks(reader)
        finally:
            self._drain()
            self._backlog.end(self._capacity.take_ended())
            self._hand_over(reader, self._backlog.leave())
            reader.close()
            self._writer = None
            letters.close()

    def _read(self, reader: Reader) -> None:
        if len(self._backlog) < _READ_AHEAD:
            received = reader.poll(_BUSY_POLL_S if len(self._backlog) else _POLL_S)
        else:
            received = []
            self._capacity.free(_POLL_S)
        if self._assigned:
            committed = self._committed_of_assigned(reader)
            for partition, (offset, begun) in committed.items():
                # A group that committed nothing yet has a negative offset and no metadata.
                left = max(offset, 0)
                self._backlog.add_partition(partition, Progress(left, int(begun or left)))
            self._assigned.clear()
        self._backlog.add(received)

    def _committed_of_assigned(self, reader: Reader) -> Mapping[LogPartition, tuple[int, str]]:
        """Return what former owners committed, however long an outage lasts."""
        try:
            return reader.committed(self._assigned, WITHOUT_LIMIT)
        except KafkaUnavailable:
            if not self._ended.is_set():
                raise
            return {}

    def _start_tasks(self, reader: Reader) -> None:
        self._changed |= self._backlog.end(self._capacity.take_ended())
        popped, progress = self._backlog.pop(self._capacity.free())
        if self._ended.is_set() or not self._committed(reader, progress):
            self._backlog.put_back(popped)
            return
        self._capacity.reserve(len(popped))
        for item in popped:
            place = place_of(item)
            if isinstance(item.record, Task):
                self._start(StartedTask(item.record, place, self._backlog.was_begun(item)))
            else:
                self._capacity.release(place)

    def _committed(self, reader: Reader, started: Mapping[LogPartition, Progress]) -> bool:
        """Commit starts at once and ends now and then; return False if starts were not committed.

        Starts go first: see the module's docstring.
        """
        now_s = time.monotonic()
        if not started and now_s - self._committed_s < _COMMIT_EVERY_S:
            return True
        self._committed_s = now_s
        try:
            progress = {**self._backlog.progress(self._changed), **started}
            self._commit(reader, progress, COMMIT_S)
        except KafkaUnavailable as error:
            _log.warning("no task is started before Kafka has its offset: %s", error)
            return False
        self._changed.clear()
        return True

    def _hand_over(self, reader: Reader, progress: Mapping[LogPartition, Progress]) -> None:
        """Commit what the partitions' next owner has to know."""
        try:
            self._commit(reader, progress)
        except KafkaUnavailable as error:  # then the next owner ends sessions that go on here
            _log.warning("tasks under way were not handed over: %s", error)

    def _commit(
        self,
        reader: Reader,
        progress: Mapping[LogPartition, Progress],
        limit_s: float | None = None,
    ) -> None:
        offsets = {partition: (made.ended, str(made.begun)) for partition, made in progress.items()}
        reader.commit(offsets, limit_s)


def _log_lost(error: DeliveryFailed | None, _: int) -> None:
    if error is not None:
        _log.warning("a report did not reach the log: %s", error)
