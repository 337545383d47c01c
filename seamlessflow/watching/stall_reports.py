"""Reports about processes that stand still, written to `control` by the launcher.

The scheduler reports what it sees on the log; it cannot report itself, nor the broker.
"""

import logging
from types import TracebackType
from typing import Self

from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.topics import CONTROL

_log = logging.getLogger(__name__)
_CLOSE_S = 10.0


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
        """Write a report, or once Kafka is back; the launcher goes on without it."""
        try:
            self._producer = self._producer or Producer(self._kafka, "launcher-stalls")
            self._producer.send(CONTROL.name, report)
        except SeamlessFlowError as failed:
            _log.warning("not reported on the log: %s (%s)", report.what, failed)
