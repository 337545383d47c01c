"""Course of a run: completed steps, evaluations, trainer starts and lost workers on `control`.

Rows are only added, each with its offset. A moment's rows are those before the moment's end, so a
reader needs no copy and no lock. For commits it keeps only the offsets, for groups also why they
were dropped.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from seamlessflow.console.models.training import GroupTraining, is_undone
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.recorded.trace.row import of_kind
from seamlessflow.schemas import records as r

_TRAINERS = (r.LineageStarted, r.RunFinished)
WHOLE = 2**62
"""An offset behind all records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedStep:
    """An optimizer step that was executed to its end."""

    offset: int
    at_ms: int
    policy: str
    step: int
    lineage: str
    version: int
    values: Sequence[float]
    """Its metrics, in the order of `Course.names`; NaN for a metric that the step lacks."""


@dataclass(slots=True)
class GroupOffsets:
    """Offsets of a group's records; -1 for a missing record."""

    admitted: int = -1
    ended: int = -1
    """Offset of its first `GroupReady` or `GroupDropped`."""
    dropped: int = -1
    """Offset of its first `GroupDropped`."""
    reason: str = ""
    """Reason why it was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCourse:
    """One policy's course up to an offset."""

    policy: str
    policies: Sequence[str]
    """All policies that have a trainer or a step."""
    every: Sequence[CompletedStep]
    """All policies' steps in log order, including those that a restart undid."""
    steps: Sequence[CompletedStep]
    """The policy's steps that led to its newest weights."""
    events: Sequence[Received]


@dataclass(frozen=True, slots=True)
class MomentStep:
    """The step that a moment belongs to."""

    policy: str
    step: int
    """Counted from 0. Once its trainer has finished, this is one more than its last step."""
    finished: bool = False


Row = TypeVar("Row", CompletedStep, Received)


class Course:
    """Rows from one log, in log order. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self.training = GroupTraining()
        self.names: list[str] = []
        """Names of all metrics so far, in the order in which they came."""
        self._numbers: dict[str, int] = {}
        self._steps: list[CompletedStep] = []
        self._events: list[Received] = []
        self._groups: dict[str, GroupOffsets] = {}
        self._drops = array("q")
        self._commits: dict[tuple[str, int], list[int]] = {}

    def note(self, item: Received) -> None:
        """Take the next record of `control`."""
        self.training.note(item)
        match item.record:
            case r.StepCompleted() as step:
                self._steps.append(self._completed(item, step))
            case r.EvaluationCompleted() | r.LineageStarted() | r.RunFinished():
                self._events.append(item)
            case r.WorkerLost(reason=reason) if reason != ENDED:
                self._events.append(item)
            case r.StepCommitted() as commit:
                self._commits.setdefault((commit.policy, commit.step), []).append(item.offset)
            case r.GroupAdmitted() as group:
                self._groups.setdefault(group.group_id, GroupOffsets()).admitted = item.offset
            case r.GroupReady() | r.GroupDropped() as group:
                self._end(item.offset, group)

    def steps(self, end: int) -> Sequence[CompletedStep]:
        """Return the steps that completed before an offset on `control`, in log order."""
        return _before(self._steps, end)

    def events(self, end: int) -> Sequence[Received]:
        """Return evaluations, trainers' starts and ends, and losses before an offset, in order."""
        return _before(self._events, end)

    def step_at(self, end: int) -> MomentStep | None:
        """Return the step that the last record before an offset belongs to, or None before the
        first.

        With several policies, the step belongs to the trainer that last completed a step, started
        or finished.
        """
        rows: list[CompletedStep | Received] = [*self.steps(end)[-1:]]
        ends = (item for item in reversed(self.events(end)) if isinstance(item.record, _TRAINERS))
        rows += islice(ends, 1)
        last = max(rows, key=lambda row: row.offset, default=None)
        if isinstance(last, CompletedStep):
            return MomentStep(last.policy, last.step + (last.offset != end - 1))
        match last.record if last is not None else None:
            case r.LineageStarted() as start:
                return MomentStep(start.policy, start.step)
            case r.RunFinished() as finish:
                return MomentStep(finish.policy, finish.steps, finished=True)
        return None

    def of_policy(self, policy: str, end: int) -> PolicyCourse:
        """Return a policy's course before an offset on `control`; by default the first one's."""
        every = self.steps(end)
        events = self.events(end)
        policies = policies_of(every, events)
        chosen = policy or next(iter(policies), "")
        return PolicyCourse(
            policy=chosen,
            policies=policies,
            every=every,
            steps=surviving(every, events, chosen),
            events=events,
        )

    def beside(self, policy: str) -> PolicyCourse:
        """Return a policy's whole course, or the first policy's if the run has none with this name.

        So two runs can stand beside each other even if they name their policies differently.
        """
        same = self.of_policy(policy, WHOLE)
        return same if policy in same.policies else self.of_policy("", WHOLE)

    def commits(self, policy: str, step: int, end: int) -> Sequence[int]:
        """Return the offsets of a step's commits before `end`, in log order."""
        return [offset for offset in self._commits.get((policy, step), ()) if offset < end]

    def group(self, group_id: str, end: int) -> Sequence[int]:
        """Return the offsets before `end` at which a group was admitted and first ended."""
        offsets = self._groups.get(group_id, GroupOffsets())
        return [offset for offset in (offsets.admitted, offsets.ended) if 0 <= offset < end]

    def drops(self, begin: int, end: int) -> Sequence[int]:
        """Return the offsets of all `GroupDropped` from `begin` up to `end`."""
        return self._drops[bisect_left(self._drops, begin) : bisect_left(self._drops, end)]

    def drop_reason(self, group_id: str, end: int) -> str:
        """Return why a group was dropped before an offset; empty if it was not."""
        offsets = self._groups.get(group_id)
        return offsets.reason if offsets is not None and 0 <= offsets.dropped < end else ""

    def metrics(self, step: CompletedStep) -> Mapping[str, float]:
        """Return a step's metrics by name."""
        pairs = zip(self.names, step.values, strict=False)
        return {name: value for name, value in pairs if value == value}

    def value(self, step: CompletedStep, name: str) -> float | None:
        """Return one metric of a step, or None for one that it lacks."""
        number = self._numbers.get(name)
        if number is None or number >= len(step.values):
            return None
        value = step.values[number]
        return value if value == value else None

    def _end(self, offset: int, group: r.GroupReady | r.GroupDropped) -> None:
        offsets = self._groups.setdefault(group.group_id, GroupOffsets())
        if offsets.ended < 0:
            offsets.ended = offset
        if isinstance(group, r.GroupDropped):
            self._drops.append(offset)
            if offsets.dropped < 0:
                offsets.dropped = offset
                offsets.reason = sys.intern(group.reason)

    def _completed(self, item: Received, step: r.StepCompleted) -> CompletedStep:
        for name in step.metrics:
            if name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
        missing = float("nan")
        return CompletedStep(
            offset=item.offset,
            at_ms=item.timestamp_ms,
            policy=step.policy,
            step=step.step,
            lineage=step.lineage,
            version=step.version,
            values=array("d", (step.metrics.get(name, missing) for name in self.names)),
        )


def policies_of(steps: Sequence[CompletedStep], events: Sequence[Received]) -> list[str]:
    """Return the policies that have a trainer or a step."""
    started = {start.policy for start, _ in of_kind(events, r.LineageStarted)}
    return sorted(started | {row.policy for row in steps})


def starts_of(events: Sequence[Received], policy: str) -> list[tuple[r.LineageStarted, Received]]:
    """Return a policy's trainer starts, each with its place."""
    return [
        (start, item) for start, item in of_kind(events, r.LineageStarted) if start.policy == policy
    ]


def surviving(
    steps: Sequence[CompletedStep], events: Sequence[Received], policy: str
) -> list[CompletedStep]:
    """Return a policy's steps that led to its newest weights, in step order.

    A trainer that begins again at a step undoes that step and the later ones.
    """
    starts = [(item.offset, start.step) for start, item in starts_of(events, policy)]
    of_policy = (row for row in steps if row.policy == policy)
    kept = {row.step: row for row in of_policy if not is_undone(row.offset, row.step, starts)}
    return [kept[number] for number in sorted(kept)]


def _before(rows: list[Row], end: int) -> Sequence[Row]:
    return rows[: bisect_left(rows, end, key=lambda row: row.offset)]
