"""Comparison of two evaluations, task by task: what changed, and if chance would do as much. Pure.

A difference is the second value minus the first. Each task counts once, with the mean over its
sessions. Called by `seamlessflow eval --compare`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, NamedTuple

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.reports.evaluations.result import EvaluatedSet, EvaluatedTask
from seamlessflow.trainer.data.figures.chances import ConfidenceInterval, passed
from seamlessflow.trainer.data.figures.significance import bootstrap, mcnemar, permutation

MCNEMAR = "McNemar"
PERMUTATION = "permutation"


class NotComparable(SeamlessFlowError):
    """Evaluations without a common task, or with different successes."""

    lasting = True


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Both means over common tasks, and their difference."""

    first: float
    second: float
    difference: float
    interval: ConfidenceInterval | None
    """95% confidence interval for the difference, by a bootstrap over tasks."""
    p: float
    """Chance to see so large a difference, of either sign, if there really is none."""
    test: str


class ChangedTask(NamedTuple):
    """A task whose share of passing sessions changed."""

    task_id: str
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class UncomparedTasks:
    """Counts of tasks that are compared with nothing."""

    only_first: int
    only_second: int
    unjudged: int
    """Common tasks that lack, on one side, a session that counted."""


@dataclass(frozen=True, slots=True)
class SetComparison:
    """Comparison on one set."""

    tasks: int
    left_out: UncomparedTasks
    success: float
    """Least return with which a session passes."""
    reward: PairedDifference
    passing: PairedDifference
    """Share of sessions that pass."""
    better: tuple[ChangedTask, ...]
    """Tasks that pass more often, the most changed first."""
    worse: tuple[ChangedTask, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        changed = {
            name: [task._asdict() for task in tasks]
            for name, tasks in (("better", self.better), ("worse", self.worse))
        }
        return {**asdict(self), **changed}


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    """Comparison of two evaluations, by set."""

    sets: Mapping[str, SetComparison]
    only_first: tuple[str, ...] = ()
    """Sets without a common task in the second."""
    only_second: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "sets": {name: compared.to_json() for name, compared in self.sets.items()},
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }


def compare(
    first: Mapping[str, EvaluatedSet], second: Mapping[str, EvaluatedSet]
) -> EvaluationComparison:
    """Return the comparison of sets with the same name. Raises `NotComparable`."""
    sets = {
        name: compared
        for name in first
        if name in second and (compared := _compared(name, first[name], second[name])) is not None
    }
    if not sets:
        names = [", ".join(map(repr, evaluated)) for evaluated in (first, second)]
        raise NotComparable(
            f"no set has a task in common: the first has the sets {names[0] or 'none'}, the second "
            f"{names[1] or 'none'}; tasks are compared by their ids"
        )
    return EvaluationComparison(
        sets,
        tuple(name for name in first if name not in sets),
        tuple(name for name in second if name not in sets),
    )


def _compared(name: str, first: EvaluatedSet, second: EvaluatedSet) -> SetComparison | None:
    """Return a set's comparison; None if no common task counted."""
    common = [task for task in first.tasks if task in second.tasks]
    pairs = [(first.tasks[task], second.tasks[task]) for task in common]
    judged = [pair for pair in pairs if pair[0].returns and pair[1].returns]
    if not judged:
        return None
    if first.success != second.success:
        raise NotComparable(
            f"{name}: a return of {first.success:g} passes in the first and one of "
            f"{second.success:g} in the second: evaluate both with one evaluation.success"
        )
    shares = [
        ChangedTask(before.task_id, _share(before, first), _share(after, second))
        for before, after in judged
    ]
    rewards = [(fmean(before.returns), fmean(after.returns)) for before, after in judged]
    once = all(len(task.returns) == 1 for pair in judged for task in pair)
    return SetComparison(
        tasks=len(judged),
        left_out=UncomparedTasks(
            len(first.tasks) - len(common),
            len(second.tasks) - len(common),
            len(common) - len(judged),
        ),
        success=first.success,
        reward=_difference(rewards),
        passing=_difference([(task.first, task.second) for task in shares], proportions=once),
        better=_changed(shares, sign=1),
        worse=_changed(shares, sign=-1),
    )


def _difference(
    pairs: Sequence[tuple[float, float]], proportions: bool = False
) -> PairedDifference:
    """Return the means' difference. `proportions`: each value is 0 or 1, from one session."""
    differences = [after - before for before, after in pairs]
    if proportions:
        better = sum(change > 0 for change in differences)
        worse = sum(change < 0 for change in differences)
        p = mcnemar(better, worse)
    else:
        p = permutation(differences)
    return PairedDifference(
        first=fmean(before for before, _ in pairs),
        second=fmean(after for _, after in pairs),
        difference=fmean(differences),
        interval=bootstrap(differences),
        p=p,
        test=MCNEMAR if proportions else PERMUTATION,
    )


def _share(task: EvaluatedTask, evaluated: EvaluatedSet) -> float:
    return passed(task.returns, evaluated.success) / len(task.returns)


def _changed(shares: Sequence[ChangedTask], sign: int) -> tuple[ChangedTask, ...]:
    """Return the tasks whose share grew (`sign` 1) or fell (-1), the most changed first."""
    changed = [task for task in shares if sign * (task.second - task.first) > 0]
    return tuple(sorted(changed, key=lambda task: -abs(task.second - task.first)))
