"""Wanted roles: a strategy's results, and the gangs behind them. Pure.

A gang is wanted as a whole or not at all. A strategy returns only the workers whose role matters
now; the others stay as they are. Called by the strategies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from seamlessflow.scheduler.decisions import gates
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView

BOTH = frozenset({"rollout", "train"})
HELD = 1.1
"""Advantage for workers that hold training, so small changes in measured speed move no worker."""


class Wanted(NamedTuple):
    """The role that a worker should have. A named tuple, like `WorkerView`."""

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
    """Want training by a gang, with its own figures or each worker's speed ratio."""
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
    """Want rollout by all able workers outside the gang; optional for those holding training."""
    free = [worker for worker in workers if worker.name not in gang]
    # A batch waits but too few workers can train: keeping them in training gains nothing.
    stuck = snapshot.batch and not gang
    reason, figures = _why_not_training(snapshot, gang)
    training = gates.TrainingFigures(snapshot)
    wanted = []
    for worker in free:
        if "rollout" not in worker.able:
            continue
        if "train" not in worker.tags:
            wanted.append(Wanted(worker.name, "rollout", "only rolls out"))
            continue
        optional = worker.role == "train" and not stuck
        wanted.append(
            Wanted(
                worker=worker.name,
                role="rollout",
                reason=reason,
                optional=optional,
                figures=training.figures(worker) if optional else figures,
            )
        )
    return wanted


def only_rollout(snapshot: Snapshot) -> list[Wanted]:
    """Want rollout by all workers: for a policy that is not trained, whatever the strategy."""
    return roll_out(snapshot, snapshot.workers, frozenset())


def form_gang(snapshot: Snapshot, candidates: Iterable[WorkerView]) -> frozenset[str]:
    """Return the names of the workers that train together; empty if they are too few.

    A gang that trains, or has the right size, stays as it is. A new gang takes the candidates with
    the highest ratio of training speed to rollout speed.
    """
    able = [worker for worker in candidates if "train" in worker.able]
    total = device_sum(able)
    least = snapshot.gang_size or total
    if total < least or not able:
        return frozenset()
    most = max(least, min(least + snapshot.helpers, total))
    best = sorted(able, key=preference)
    formed = _with_helpers(snapshot, enough(best, least), best, most)
    held = [worker for worker in able if worker.name in snapshot.gang]
    # Without a fixed size, a gang of all workers grows by new workers, but only between steps.
    # Workers whose devices do not divide the size make a larger gang.
    fits = snapshot.under_way or least <= device_sum(held) <= max(most, device_sum(formed))
    kept = bool(snapshot.gang) and len(held) == len(snapshot.gang) and fits
    return snapshot.gang if kept else frozenset(worker.name for worker in formed)


def preference(worker: WorkerView) -> tuple[float, bool, str]:
    """Return the sorting key for workers: those that should train come first."""
    holds = worker.role == "train"
    return -worker.ratio * (HELD if holds else 1), not holds, worker.name


def enough(best: Sequence[WorkerView], least: int) -> list[WorkerView]:
    """Return the first workers with `least` devices together, or as few more as possible."""
    gang: list[WorkerView] = []
    size = 0
    for worker in best:
        if size + worker.devices <= least:
            gang.append(worker)
            size += worker.devices
    chosen = {worker.name for worker in gang}
    for worker in best:
        if size < least and worker.name not in chosen:
            gang.append(worker)
            size += worker.devices
    return gang


def device_sum(workers: Iterable[WorkerView]) -> int:
    """Return how many devices the workers have."""
    return sum(worker.devices for worker in workers)


def _why_not_training(snapshot: Snapshot, gang: frozenset[str]) -> tuple[str, Mapping[str, float]]:
    """Return why able workers outside the gang do not train, with the figures behind it."""
    if gang:
        return "is not in the gang", {"gang": device_sum(snapshot.present[name] for name in gang)}
    if not snapshot.batch:
        return "no batch to train", {"missing_groups": snapshot.missing}
    able = device_sum(worker for worker in snapshot.workers if "train" in worker.able)
    return "no gang can be formed", {"devices": able, "needed": snapshot.gang_size or 1}


def _with_helpers(
    snapshot: Snapshot, gang: list[WorkerView], best: Sequence[WorkerView], most: int
) -> list[WorkerView]:
    """Return the gang and the further workers that are worth their switches."""
    size = device_sum(gang)
    chosen = {worker.name for worker in gang}
    for worker in best:
        fits = size + worker.devices <= most and worker.name not in chosen
        if fits and gates.helper_pays(snapshot, size, worker.devices):
            gang = [*gang, worker]
            size = size + worker.devices
    return gang
