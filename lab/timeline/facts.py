"""A run's facts beside its workers' time: steps, versions, groups, assignments, marks.

A pure fold over `control`, for the page. Times are in milliseconds since the epoch.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.scheduler.state.timeline import in_force
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """An optimizer step; a time is None as long as its record is missing."""

    policy: str
    step: int
    groups: int = 0
    tokens: int = 0
    ready_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    version: int | None = None
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """A role assignment, with the strategy's reason."""

    at_ms: int
    role: str
    reason: str
    figures: Mapping[str, float]
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A single event: a stall, a loss, a time-out, a warning."""

    at_ms: int
    text: str


@dataclass
class RunFacts:
    """The fold; `facts` makes it."""

    steps: dict[tuple[str, int], StepTimes] = field(default_factory=dict)
    versions: list[tuple[int, int, str]] = field(default_factory=list)
    """Each version's time, number and policy."""
    under_way: list[tuple[int, int]] = field(default_factory=list)
    """From each time on, the count of groups that are admitted and not ready or dropped."""
    assignments: defaultdict[str, list[Given]] = field(default_factory=lambda: defaultdict(list))
    """Assignments by worker."""
    loaded: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Versions that each worker loaded, with their times."""
    marks: list[Mark] = field(default_factory=list)
    _finished: set[str] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        """True once the run has ended for each policy that made a step."""
        policies = {times.policy for times in self.steps.values()}
        return bool(self._finished) and ("" in self._finished or policies <= self._finished)

    def apply(self, record: Record) -> None:
        """Fold a record in."""
        self._apply_step(record)
        self._apply_worker(record)
        self._apply_mark(record)
        match record:
            case r.GroupAdmitted():
                self._open.add(record.group_id)
                self._count(record.at_ms)
            case r.GroupReady() | r.GroupDropped() if record.group_id in self._open:
                self._open.discard(record.group_id)
                self._count(record.at_ms)
            case r.RunFinished():
                self._finished.add(record.policy)

    def _apply_step(self, record: Record) -> None:
        match record:
            case r.BatchReady():
                size = len(record.groups)
                tokens = record.trainable_tokens
                self._step(record, ready_ms=record.at_ms, groups=size, tokens=tokens)
            case r.StepStarted():
                self._step(record, started_ms=record.at_ms, workers=len(record.workers))
            case r.StepCompleted():
                self._step(record, ended_ms=record.at_ms, version=record.version)
            case r.StepSkipped():
                self._step(record, ended_ms=record.at_ms)
            case r.WeightsPublished():
                self.versions.append((record.at_ms, record.version, record.policy))

    def _apply_worker(self, record: Record) -> None:
        match record:
            case r.RoleAssigned():
                assignment = Given(
                    record.at_ms, record.role, record.reason, record.figures, record.policy
                )
                self.assignments[record.worker].append(assignment)
            case r.RoleAcquired(version=int(version)):
                self.loaded[record.worker].append((record.at_ms, version))
            case r.WeightsLoaded():
                self.loaded[record.worker].append((record.at_ms, record.version))

    def _apply_mark(self, record: Record) -> None:
        match record:
            case r.ProgressStalled():
                self.marks.append(Mark(record.at_ms, f"stall of {record.what}: {record.detail}"))
            case r.WorkerLost() if record.reason != ENDED:
                lost = f"{record.process} process of {record.worker} lost: {record.reason}"
                self.marks.append(Mark(record.at_ms, lost))
            case r.AssignmentTimedOut():
                late = f"{record.worker} did not take {record.role} in {record.waited_ms} ms"
                self.marks.append(Mark(record.at_ms, late))
            case r.PlanWarning():
                self.marks.append(Mark(record.at_ms, f"{record.code}: {record.detail}"))

    def _step(
        self,
        record: r.BatchReady | r.StepStarted | r.StepCompleted | r.StepSkipped,
        **changes: Any,
    ) -> None:
        key = record.policy, record.step
        times = self.steps.get(key, StepTimes(policy=record.policy, step=record.step))
        self.steps[key] = replace(times, **changes)

    def _count(self, at_ms: int) -> None:
        self.under_way.append((at_ms, len(self._open)))


def facts(records: Iterable[Record]) -> RunFacts:
    """Return the facts in `control` records, which come in log order."""
    run_facts = RunFacts()
    for record in in_force(records):
        run_facts.apply(record)
    return run_facts
