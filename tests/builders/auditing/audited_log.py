"""A log made by hand, and the audit of it."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.auditor import Auditor, AuditReport
from seamlessflow.recorded.audit.rounds import ManagersProgress
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS, TOPICS
from tests.builders.trainer.trajectories import NOTHING

_TOPIC_OF = {record: topic for topic in TOPICS.values() for record in topic.records}
KEPT_LONG_MS = 1_000_000
"""Time of records far behind the first that retention left."""


class AuditedLog:
    """One partition a topic; records go to their topics in the order in which they are put.

    If `recorded`, it is that of a training on a recording.
    """

    def __init__(
        self,
        trained: Path | None = None,
        most_tokens: int | None = None,
        recorded: bool = False,
    ) -> None:
        self._auditor = Auditor(1, trained, most_tokens, recorded)
        self._ends: Counter[str] = Counter()

    def cut(self, topic: str = SESSIONS.name) -> "AuditedLog":
        """Let retention have removed the topic's first hundred records."""
        self._auditor.cut((topic, 0))
        self._ends[topic] = 100
        return self

    def put(self, *records: Record, at_ms: int = 0) -> "AuditedLog":
        for record in records:
            topic = _TOPIC_OF[type(record)].name
            offset = self._ends[topic]
            self._auditor.apply(Received(topic, 0, offset, at_ms, None, (), record))
            self._ends[topic] += 1
        return self

    def end(self, topic: str) -> int:
        """Return the offset of the next record."""
        return self._ends[topic]

    def settle(self, requests: int = 0, covered: int = 0) -> "AuditedLog":
        """Judge the records so far; the managers' progress is given."""
        self._auditor.settle(ManagersProgress({0: requests}, {0: covered}))
        return self

    def ended(self) -> "AuditedLog":
        """Judge what is open, as of a run of which no process lives."""
        self._auditor.end()
        return self

    @property
    def report(self) -> AuditReport:
        return self._auditor.report([])

    def details(self, check: str) -> list[str]:
        """Return the violations that one check found, each with its place."""
        return [f"{v.place}: {v.detail}" for v in self.report.violations if v.check == check]

    def counts(self, check: str) -> tuple[int, int, int, int]:
        """Return what a check counted: checked, open, not checkable, violations."""
        result = self.report.result(check)
        return result.checked, result.open, result.not_checkable, result.violations


def trajectory(session_id: str = "s", first: int = 0, last: int = 0, status: str = "") -> Record:
    """Return a trajectory of the session whose events have these offsets in partition 0."""
    fields = {**vars(NOTHING), "session_id": session_id, "status": status}
    return r.Trajectory(**{**fields, "first_offset": first, "last_offset": last})


def whole(log: AuditedLog, events: Iterable[Record]) -> AuditedLog:
    """Put the events of a session and the trajectory that names their places."""
    first = log.end(SESSIONS.name)
    log.put(*events)
    return log.put(trajectory(first=first, last=log.end(SESSIONS.name) - 1))
