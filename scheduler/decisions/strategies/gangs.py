"""Gangs of a fixed size: the workers that train together. Pure.

A gang is wanted as a whole or not at all. Called by the strategies.
"""

from collections.abc import Iterable, Sequence

from seamlessflow.scheduler.decisions import gates
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView

HELD = 1.1
"""Advantage of the workers that hold training, so that measured speeds which vary a little do not
move anyone."""


def form_gang(snapshot: Snapshot, candidates: Iterable[WorkerView]) -> frozenset[str]:
    """Return the names of the workers that train together; empty if they are too few.

    A gang that trains, or has the right size, stays as it is. A new one is made of the candidates
    with the highest ratio of training speed to rollout speed.
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
    # Without a fixed size a gang of all grows by new workers, but only between steps. Workers that
    # do not divide the size make a larger gang.
    fits = snapshot.under_way or least <= device_sum(held) <= max(most, device_sum(formed))
    kept = bool(snapshot.gang) and len(held) == len(snapshot.gang) and fits
    return snapshot.gang if kept else frozenset(worker.name for worker in formed)


def preference(worker: WorkerView) -> tuple[float, bool, str]:
    """Return the key by which workers are sorted: those that should train come first."""
    holds = worker.role == "train"
    return -worker.ratio * (HELD if holds else 1), not holds, worker.name


def enough(best: Sequence[WorkerView], least: int) -> list[WorkerView]:
    """Return the first workers that have `least` devices together, or as few more as possible
    without another order.
    """
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
    """Return the number of devices of the workers."""
    return sum(worker.devices for worker in workers)


def _with_helpers(
    snapshot: Snapshot, gang: list[WorkerView], best: Sequence[WorkerView], most: int
) -> list[WorkerView]:
    """Return the gang and the further workers that are worth their switches."""
    size, chosen = device_sum(gang), {worker.name for worker in gang}
    for worker in best:
        fits = size + worker.devices <= most and worker.name not in chosen
        if fits and gates.helper_pays(snapshot, size, worker.devices):
            gang, size = [*gang, worker], size + worker.devices
    return gang
