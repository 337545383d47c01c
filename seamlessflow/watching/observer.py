"""A run's observer, for the launcher: reads its progress, and reports processes that stand still.

The progress is a fold over `control` and `fleet`; the reports are written to `control`. The
scheduler reports what it sees on the log, but it cannot report itself or the broker.
"""

import logging
from types import TracebackType
from typing import Self

from seamlessflow.config import RunConfig
from seamlessflow.infra import clock
from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.unreadable import Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.topics import CONTROL, FLEET
from seamlessflow.watching.progress import RunProgress

_POLL_S = 0.05
_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Observer:
    """Reader of both topics, used from one thread. A context manager."""

    def __init__(self, settings: KafkaSettings, progress: RunProgress) -> None:
        self.progress = progress
        self._reader = Reader(settings, "launcher")

    def __enter__(self) -> Self:
        self._reader.assign({(CONTROL.name, 0): BEGINNING, (FLEET.name, 0): BEGINNING})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reader.close()

    def poll(self) -> RunProgress:
        """Fold in all records that have arrived; return the progress."""
        # Until a poll brings nothing: a resumed run has a long log to fold before it is up to date.
        while received := self._reader.poll(_POLL_S):
            for item in received:
                if isinstance(item.record, Unreadable):
                    self.progress.skipped.apply(item.topic, item.record)
                else:
                    self.progress.apply(item.record)
        return self.progress


def progress_from_now(config: RunConfig) -> RunProgress:
    """Return the progress for a run whose present processes start now, with all its policies."""
    steps = config.run.steps
    return RunProgress(
        config.run.policy,
        steps,
        since_ms=clock.now_ms(),
        others={
            name: RunProgress(name, 0 if name in config.frozen else steps)
            for name in config.policies
        },
    )


def frozen(name: str, limit_s: float, now_ms: int) -> ProgressStalled:
    """Return the report about a process that gave no sign of life for `limit_s`. Pure."""
    limit_ms = round(1000 * limit_s)
    return ProgressStalled(
        at_ms=now_ms,
        what=f"{name} stands still",
        detail=f"no sign of life for {limit_s:g} s; it is ended by force and started again",
        since_ms=now_ms - limit_ms,
        process=name,
        deadline_ms=limit_ms,
    )


class StallReports:
    """Writer of the reports; it connects for the first one. A context manager."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._producer is None:
            return
        try:
            self._producer.close(_CLOSE_S)
        except KafkaUnavailable as away:
            _log.warning("a process that stood still is not reported on the log: %s", away)

    def send(self, report: ProgressStalled) -> None:
        """Write a report, now or once Kafka is back; the launcher goes on without it."""
        try:
            self._producer = self._producer or Producer(self._kafka, "launcher-stalls")
            self._producer.send(CONTROL.name, report)
        except SeamlessFlowError as failed:
            _log.warning("not reported on the log: %s (%s)", report.what, failed)
