"""Course of a run: completed steps, evaluations, starts of trainers and lost workers on `control`.

Rows are only added, each with its offset. So those of a moment are the ones before the moment's
end, without a copy, and a reader needs no lock. Of groups and commits it has the offsets alone.
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
    """Its metrics, in the order of the course's names; NaN for one that the step lacks."""


@dataclass(slots=True)
class GroupOffsets:
    """Offsets of a group's records; -1 for one that is missing."""

    admitted: int = -1
    ended: int = -1
    """That of its first `GroupReady` or `GroupDropped`."""
    dropped: int = -1
    """That of its first `GroupDropped`."""
    reason: str = ""
    """Reason for which it was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCourse:
    """Course of one policy up to an offset."""

    policy: str
    policies: Sequence[str]
    """All policies that have a trainer or a step."""
    every: Sequence[CompletedStep]
    """Steps of all policies, in log order, with those that a restart undid."""
    steps: Sequence[CompletedStep]
    """Steps of the policy that its newest weights are made of."""
    events: Sequence[Received]


@dataclass(frozen=True, slots=True)
class MomentStep:
    """The step that a moment belongs to."""

    policy: str
    step: int
    """Number from 0; of a trainer that has finished, that of the step behind its last."""
    finished: bool = False


Row = TypeVar("Row", CompletedStep, Received)


class Course:
    """Rows of one log, in its order. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self.training = GroupTraining()
        self.names: list[str] = []
        """All metrics so far, in the order in which they came."""
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
        """Return the completed steps before an offset of `control`, in log order."""
        return _before(self._steps, end)

    def events(self, end: int) -> Sequence[Received]:
        """Return the evaluations, starts, ends and losses before an offset, in log order."""
        return _before(self._events, end)

    def step_at(self, end: int) -> MomentStep | None:
        """Return the step that the last record before an offset belongs to, None before the first.

        With several policies it is that of the trainer that completed a step, started or finished
        last.
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
        """Return a policy's course before an offset of `control`; empty is the first policy."""
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
        """Return the whole course of a policy, or of the first if the run has none of this name.

        So another run stands beside one that names its policy otherwise.
        """
        same = self.of_policy(policy, WHOLE)
        return same if policy in same.policies else self.of_policy("", WHOLE)

    def commits(self, policy: str, step: int, end: int) -> Sequence[int]:
        """Return the offsets of a step's commits before an offset, in log order."""
        return [offset for offset in self._commits.get((policy, step), ()) if offset < end]

    def group(self, group_id: str, end: int) -> Sequence[int]:
        """Return the offsets of a group's records before an offset."""
        offsets = self._groups.get(group_id, GroupOffsets())
        return [offset for offset in (offsets.admitted, offsets.ended) if 0 <= offset < end]

    def drops(self, begin: int, end: int) -> Sequence[int]:
        """Return the offsets of the `GroupDropped` in a range of offsets."""
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
    """Return the starts of a policy's trainers, each with its place."""
    return [
        (start, item) for start, item in of_kind(events, r.LineageStarted) if start.policy == policy
    ]


def surviving(
    steps: Sequence[CompletedStep], events: Sequence[Received], policy: str
) -> list[CompletedStep]:
    """Return the steps of a policy that its newest weights are made of, in their order.

    A trainer that begins again at a step undoes that step and the later ones.
    """
    starts = [(item.offset, start.step) for start, item in starts_of(events, policy)]
    of_policy = (row for row in steps if row.policy == policy)
    kept = {row.step: row for row in of_policy if not is_undone(row.offset, row.step, starts)}
    return [kept[number] for number in sorted(kept)]


def _before(rows: list[Row], end: int) -> Sequence[Row]:
    return rows[: bisect_left(rows, end, key=lambda row: row.offset)]
