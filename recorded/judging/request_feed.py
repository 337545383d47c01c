"""Feed of requests: folds `sessions` in a separate thread, and starts a judgement for each.

The process is a member of a Kafka consumer group. For each partition it commits the oldest open
session's offset, from which the next owner folds again. So nothing else has to be handed over. If a
judgement is lost with its process, it is requested again, and its reward is recorded once.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka import log
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.outage import COMMIT_S, WITHOUT_LIMIT
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.group import membership
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.recorded.judging.requests import DueJudgement, Over, RequestedPartition
from seamlessflow.schemas.topics import SESSIONS

_CLIENT_ID = "reward-worker"
_POLL_S = 0.1
_COMMIT_EVERY_S = 1.0
_log = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class FeedCalls:
    """Functions that the feed calls in its own thread; each returns at once."""

    start: Callable[[DueJudgement], object]
    """Gets a judgement to make."""
    over: Callable[[Over], object]
    """Gets judgements that are over."""
    failed: Callable[[BaseException], object]
    """Gets the error that ended the feed."""


class RequestFeed:
    """Reader of requests in a consumer group."""

    def __init__(
        self, settings: KafkaSettings, group: str, calls: FeedCalls, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._group = group
        self._calls = calls
        self._metrics = metrics
        self._assigned: list[LogPartition] = []
        self._partitions: dict[LogPartition, RequestedPartition] = {}
        self._ends: dict[LogPartition, int] = {}
        """Ends that newly assigned partitions had, for those not read up to there yet."""
        self._committed_s = 0.0
        self._last: dict[LogPartition, tuple[int, str]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request feed", daemon=True)

    def begin(self) -> None:
        """Join the consumer group, and call until `end`."""
        self._thread.start()

    def end(self) -> None:
        """Leave the consumer group, and wait for that."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # the process ends with it
            self._calls.failed(error)

    def _serve(self) -> None:
        # A long fold over a partition must not look like a failed member.
        options: dict[str, Any] = {"max.poll.interval.ms": 3_600_000, "enable.partition.eof": True}
        options |= membership(self._settings, self._group, SESSIONS, None, self._ended.is_set)
        reader = Reader(
            self._settings,
            _CLIENT_ID,
            group=self._group,
            rules=ReadingRules(folds=True),
            stopping=self._ended.is_set,
            **options,
        )
        self._metrics.watch(reader)
        try:
            reader.subscribe(
                [SESSIONS.name],
                on_assigned=self._assigned.extend,
                on_revoked=lambda gone: self._hand_over(reader, gone),
            )
            while not self._ended.is_set():
                self._read(reader)
                self._start_due(reader)
                self._commit(reader)
        finally:
            self._hand_over(reader, list(self._partitions))
            reader.close()

    def _read(self, reader: Reader) -> None:
        received = reader.poll(_POLL_S)
        if self._assigned:
            self._take_over(reader)
        for item in received:
            self._apply(item)

    def _take_over(self, reader: Reader) -> None:
        """Begin to fold the assigned partitions from where their last owner committed."""
        assigned = list(dict.fromkeys(self._assigned))
        self._assigned.clear()
        try:
            committed = reader.committed(assigned, WITHOUT_LIMIT)
            self._ends |= reader.ends(assigned, WITHOUT_LIMIT)
        except KafkaUnavailable:
            if not self._ended.is_set():
                raise
            return
        for place, (offset, epoch) in committed.items():
            position = max(offset, 0)
            folded = LoggedPartition(place[1], epoch=int(epoch or -1), position=position)
            self._partitions[place] = RequestedPartition(folded)

    def _apply(self, item: Received) -> None:
        place = (item.topic, item.partition)
        partition = self._partitions.get(place)
        if partition is None or item.offset < partition.log.position:
            return
        over = partition.apply(item.record, item.offset)
        if over.keys:
            self._calls.over(over)
        for reason in partition.refused:
            self._metrics.counter("seamlessflow_judges_refused_total", reason=reason).inc()
        partition.refused.clear()
        if place not in self._ends:  # else an earlier owner has observed them
            for spread in partition.spreads:
                self._metrics.histogram("seamlessflow_judges_disagreement").observe(spread)
        partition.spreads.clear()

    def _start_due(self, reader: Reader) -> None:
        for place, end in list(self._ends.items()):
            if reader.position(place) >= end:
                del self._ends[place]
        for place, partition in self._partitions.items():
            if place not in self._ends:
                for judgement in partition.take_due():
                    self._calls.start(judgement)

    def _commit(self, reader: Reader) -> None:
        now_s = time.monotonic()
        if now_s - self._committed_s < _COMMIT_EVERY_S:
            return
        self._committed_s = now_s
        self._commit_progress(reader, self._partitions.keys() - self._ends.keys(), COMMIT_S)

    def _commit_progress(
        self, reader: Reader, places: Collection[LogPartition], limit_s: float | None = None
    ) -> None:
        progress = {
            place: progress
            for place in places
            if (progress := _progress(self._partitions[place])) != self._last.get(place)
        }
        if self._committed(reader, progress, limit_s):
            self._last |= progress

    def _committed(
        self,
        reader: Reader,
        progress: Mapping[LogPartition, tuple[int, str]],
        limit_s: float | None,
    ) -> bool:
        try:
            reader.commit(progress, limit_s)
        except KafkaUnavailable as error:  # the next owner then folds more of the log again
            _log.warning("progress was not committed: %s", error)
            return False
        return True

    def _hand_over(self, reader: Reader, gone: Collection[LogPartition]) -> None:
        """Forget partitions that go to another process, and give up their judgements."""
        owned = [place for place in gone if place in self._partitions]
        self._commit_progress(reader, [place for place in owned if place not in self._ends])
        for place in owned:
            self._calls.over(Over(self._partitions.pop(place).keys))
            self._ends.pop(place, None)
            self._last.pop(place, None)
        self._assigned[:] = [place for place in self._assigned if place not in gone]


def _progress(partition: RequestedPartition) -> tuple[int, str]:
    """Return the offset to commit, with the epoch in force there."""
    offset, epoch = partition.rebuild_from
    return offset, str(epoch)
