"""Speeds of workers that the run has shown. Pure.

They are learned from `control` (`scheduler/state/rates.py`); the roofline model only stands in for
what was not seen yet. Devices for which it gives the same speeds are taken to be alike. A step's
time shows the speed of the slowest kind in its gang, and that no other member is slower. Called by
the strategy `adaptive`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.choice import Speed
from seamlessflow.scheduler.state.rates import NEWEST, GangSpeed

Kind = tuple[float, float]
"""Modelled speeds of a device in training and in rollout."""


def learned_speeds(snapshot: Snapshot) -> dict[str, Speed]:
    """Return the speed of each worker in tokens a ms."""
    kinds = {worker.name: _kind(worker) for worker in snapshot.workers}
    training = _training(set(kinds.values()), kinds, snapshot.rates.gangs)
    rollout = _rollout(snapshot.workers, kinds, snapshot.rates.sampled)
    speeds = {}
    for worker in snapshot.workers:
        kind = kinds[worker.name]
        of_train, of_rollout = training[kind], rollout[kind]
        speeds[worker.name] = Speed(of_train, of_rollout * worker.devices, of_train / of_rollout)
    return speeds


def _kind(worker: WorkerView) -> Kind:
    return worker.modelled.get("train", 1.0), worker.modelled.get("rollout", 1.0)


def _training(
    present: set[Kind], kinds: Mapping[str, Kind], gangs: Sequence[GangSpeed]
) -> dict[Kind, float]:
    """Return the training speed of a device of each kind, by the steps so far."""
    # Before the first step of a kind its modelled speed counts, on the scale of the others.
    seen: dict[Kind, float] = {}
    for step in gangs:
        members = {kinds[name] for name in step.members if name in kinds}
        if not members:
            continue
        speeds = _scaled(members, seen, 0)
        slowest = min(members, key=lambda kind: (speeds[kind], kind))
        before = seen.get(slowest, step.speed)
        seen[slowest] = before + NEWEST * (step.speed - before)
        for kind in members & seen.keys():
            seen[kind] = max(seen[kind], seen[slowest])
    return _scaled(present, seen, 0)


def _rollout(
    workers: Sequence[WorkerView], kinds: Mapping[str, Kind], sampled: Mapping[str, float]
) -> dict[Kind, float]:
    """Return the rollout speed of a device of each kind."""
    measured: dict[Kind, list[float]] = defaultdict(list)
    for worker in workers:
        if worker.name in sampled:
            measured[kinds[worker.name]].append(sampled[worker.name] / worker.devices)
    return _scaled(
        set(kinds.values()), {kind: fmean(speeds) for kind, speeds in measured.items()}, 1
    )


def _scaled(wanted: set[Kind], seen: Mapping[Kind, float], role: int) -> dict[Kind, float]:
    """Return speeds seen, and for other kinds the model on the scale of those seen."""
    scale = fmean(speed / kind[role] for kind, speed in seen.items()) if seen else 1.0
    return {kind: seen.get(kind, scale * kind[role]) for kind in wanted}
