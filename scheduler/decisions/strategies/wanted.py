"""Wanted roles: the results of a strategy, and how they follow from a gang. Pure.

A strategy returns only the workers whose role matters now; the others stay as they are. Called by
the strategies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from seamlessflow.scheduler.decisions import gates
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.gangs import device_sum

BOTH = frozenset({"rollout", "train"})


class Wanted(NamedTuple):
    """The role that a worker should have. A named tuple, as `WorkerView`."""

    worker: str
    role: str
    reason: str
    optional: bool = False
    """True if nothing waits for the change: it is made only if it pays (`gates.py`)."""
    figures: Mapping[str, float] = MappingProxyType({})
    """Figures behind the reason, by name."""


Strategy = Callable[[Snapshot], Sequence[Wanted]]


def train(
    snapshot: Snapshot,
    gang: Iterable[str],
    reason: str,
    figures: Mapping[str, float] | None = None,
) -> list[Wanted]:
    """Want training of a gang, with its own figures or the ratio of each worker's speeds."""
    present = snapshot.present
    return [
        Wanted(
            worker=name,
            role="train",
            reason=reason,
            figures=figures or {"train_over_rollout_speed": present[name].ratio},
        )
        for name in sorted(gang)
    ]


def roll_out(
    snapshot: Snapshot, workers: Iterable[WorkerView], gang: frozenset[str]
) -> list[Wanted]:
    """Want rollout of all able workers outside the gang; optional for those that hold training."""
    free = [worker for worker in workers if worker.name not in gang]
    # A batch waits but too few can train: nothing is gained by keeping workers in training.
    stuck = snapshot.batch and not gang
    reason, figures = _why_not_training(snapshot, gang)
    training = gates.TrainingFigures(snapshot)
    return [
        Wanted(worker.name, "rollout", "only rolls out")
        if "train" not in worker.tags
        else Wanted(
            worker=worker.name,
            role="rollout",
            reason=reason,
            optional=worker.role == "train" and not stuck,
            figures=training.of(worker) if worker.role == "train" and not stuck else figures,
        )
        for worker in free
        if "rollout" in worker.able
    ]


def _why_not_training(snapshot: Snapshot, gang: frozenset[str]) -> tuple[str, Mapping[str, float]]:
    """Return why workers outside the gang that could train roll out, and the figures of that."""
    if gang:
        return "is not in the gang", {"gang": device_sum(snapshot.present[name] for name in gang)}
    if not snapshot.batch:
        return "no batch to train", {"missing_groups": snapshot.missing}
    able = device_sum(worker for worker in snapshot.workers if "train" in worker.able)
    return "no gang can be formed", {"devices": able, "needed": snapshot.gang_size or 1}
