"""Statistics by arm that are wrong in one way each."""

from collections.abc import Iterator
from dataclasses import replace

from seamlessflow.scheduler.state.arms import Arm, Arms, GroupResult, result_of
from seamlessflow.scheduler.state.ledger import EVAL, arms_of
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


class CountsEachResult(Arms):
    """Statistics in which each result of a group counts, repeated ones too."""

    def apply(self, before: State, record: Record, offset: int = 0) -> None:
        super().apply(before, record, offset)
        if isinstance(record, r.GroupReady) and record.group_id not in before.uncounted:
            result = result_of(record, self.counting.passes)
            group = before.first.ledger.groups.get(record.group_id)
            if result is not None and group is not None and group.purpose != EVAL:
                step = before.first.steps.trained
                self._counted((f"task:{group.task_id}",), result, step, offset)


class CountsAgainBehindATakeover(Arms):
    """Statistics that take records which their topic covers."""

    def put(self, name: str, arm: Arm, offset: int = 0) -> None:
        super().put(name, arm, 1 << 60)


class FadesFromTheStepBefore(Arms):
    """Statistics whose results are dated a step too early."""

    def _counted(self, arms: tuple[str, ...], result: GroupResult, step: int, offset: int) -> None:
        super()._counted(arms, result, max(0, step - 1), offset)


class NeverFadesByItself(Arms):
    """Statistics that fade at no result of their own."""

    def _counted(self, arms: tuple[str, ...], result: GroupResult, step: int, offset: int) -> None:
        self.counting = replace(self.counting, own_memory=1.0)
        super()._counted(arms, result, step, offset)


class CountsEvaluations(Arms):
    """Statistics in which groups of evaluations count."""

    def apply(self, before: State, record: Record, offset: int = 0) -> None:
        super().apply(before, record, offset)
        if isinstance(record, r.GroupAdmitted) and record.purpose == EVAL:
            for name in arms_of(record):
                self.put(name, self.arm(name), offset)
        if isinstance(record, r.GroupReady):
            group = before.first.ledger.groups.get(record.group_id)
            result = result_of(record, self.counting.passes)
            if group is not None and group.purpose == EVAL and result is not None:
                step = before.first.steps.trained
                self._counted((f"task:{group.task_id}",), result, step, offset)


class TakesTheLastRecord(Arms):
    """Statistics of the last record of an arm, not of that with the newest offset."""

    def restore(self, snapshot: r.ArmSnapshot, end: int) -> None:
        self._covered.pop(snapshot.arm, None)
        super().restore(snapshot, end)


class TakesNoOtherEpoch(Arms):
    """Statistics that take only records of the first scheduler."""

    def restore(self, snapshot: r.ArmSnapshot, end: int) -> None:
        if snapshot.epoch == 1:
            super().restore(snapshot, end)


class LeavesAnArmOut(Arms):
    """Statistics that do not write the last arm that changed."""

    def snapshots(self, epoch: int, offset: int) -> Iterator[r.ArmSnapshot]:
        yield from [*super().snapshots(epoch, offset)][:-1]


FAULTY: tuple[type[Arms], ...] = (
    CountsEachResult,
    CountsAgainBehindATakeover,
    FadesFromTheStepBefore,
    NeverFadesByItself,
    CountsEvaluations,
    TakesTheLastRecord,
    TakesNoOtherEpoch,
    LeavesAnArmOut,
)
