"""Speeds of workers in each role: modelled, corrected by measurements, or learned. Pure.

The roofline model: attainable speed = min(peak, arithmetic intensity x memory bandwidth); Williams,
Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009. Training is
bound by the peak, decoding by the bandwidth. So the ratio of the two speeds shows the worker that
helps training most and rollout least.

Learned speeds come from what the run has shown on `control` (`scheduler/state/rates.py`). Called by
`scheduler/decisions/snapshot.py` and the strategy `adaptive`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from seamlessflow.scheduler.state.rates import NEWEST, GangSpeed, LearnedRates

PEAK = "peak_flops"
"""Key of `WorkerHeartbeat.hardware`: dense matrix operations a second, in flop."""
BANDWIDTH = "bandwidth"
"""Key of `WorkerHeartbeat.hardware`: bytes a second from the device's memory."""
INTENSITY = {"train": 512.0, "rollout": 16.0}
"""Operations for each byte moved: a training micro-batch; a decoding step for about ten turns."""
_Kind = tuple[float, float]
"""A device's modelled speeds in training and in rollout."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A worker's speeds in work a ms: one device's in training, all devices' in rollout."""

    train: float
    rollout: float
    ratio: float
    """Training speed over rollout speed; workers with a higher ratio are chosen first."""


def attainable(hardware: Mapping[str, float]) -> Mapping[str, float]:
    """Return the flop/s that the device reaches in each role, or 1 if its figures are unknown."""
    return _attainable(hardware.get(PEAK), hardware.get(BANDWIDTH))


def ratios(
    modelled: Mapping[str, Mapping[str, float]], measured: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return training speed over rollout speed for each worker; a higher ratio means training.

    `modelled`: a device's speeds in flop/s, by worker and role. `measured`: speeds in tokens/s, by
    role and worker, as far as measured.
    """
    gains = {role: _gain(modelled, speeds, role) for role, speeds in measured.items() if speeds}
    # A role that no worker has shown yet gets the other role's gain. Otherwise the ratio would have
    # a unit.
    train, rollout = (
        _calibrated(modelled, measured.get(role, {}), role, gains.get(role, gains.get(other, 1.0)))
        for role, other in (("train", "rollout"), ("rollout", "train"))
    )
    return {name: train[name] / rollout[name] for name in modelled}


def learned_speeds(
    modelled: Mapping[str, Mapping[str, float]], devices: Mapping[str, int], rates: LearnedRates
) -> dict[str, Speed]:
    """Return each worker's speed in tokens a ms, as the run has shown it.

    Devices with equal speeds in the roofline model count as alike. The model only fills in speeds
    that were not seen yet. `modelled`: as in `ratios`; `devices`: device count by worker.
    """
    kinds = {name: _kind(speeds) for name, speeds in modelled.items()}
    training = _training(set(kinds.values()), kinds, rates.gangs)
    rollout = _rollout(kinds, devices, rates.sampled)
    speeds = {}
    for name, kind in kinds.items():
        of_train = training[kind]
        of_rollout = rollout[kind]
        speeds[name] = Speed(of_train, of_rollout * devices[name], of_train / of_rollout)
    return speeds


@cache
def _attainable(peak: float | None, bandwidth: float | None) -> Mapping[str, float]:
    performance = {}
    for role, intensity in INTENSITY.items():
        bound = None if bandwidth is None else intensity * bandwidth
        limits = [value for value in (peak, bound) if value is not None and value > 0]
        performance[role] = min(limits) if limits else 1.0
    return performance


def _gain(
    modelled: Mapping[str, Mapping[str, float]], measured: Mapping[str, float], role: str
) -> float:
    """Return the mean ratio of measured to modelled speed, or 1 if no worker was measured."""
    gains = [speed / modelled[name][role] for name, speed in measured.items() if name in modelled]
    return sum(gains) / len(gains) if gains else 1.0


def _calibrated(
    modelled: Mapping[str, Mapping[str, float]],
    measured: Mapping[str, float],
    role: str,
    gain: float,
) -> dict[str, float]:
    """Return measured speeds, and the modelled speed times `gain` for the other workers.

    So tokens/s and flop/s can be compared.
    """
    return {
        name: measured[name] if name in measured else gain * speeds[role]
        for name, speeds in modelled.items()
    }


def _kind(modelled: Mapping[str, float]) -> _Kind:
    return modelled.get("train", 1.0), modelled.get("rollout", 1.0)


def _training(
    present: set[_Kind], kinds: Mapping[str, _Kind], gangs: Sequence[GangSpeed]
) -> dict[_Kind, float]:
    """Return a device's training speed for each kind, by the steps so far.

    A step's time shows the speed of the slowest kind in its gang, and a lower bound for other
    members.
    """
    # Before a kind's first step its modelled speed counts, on the scale of the others.
    seen: dict[_Kind, float] = {}
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
    kinds: Mapping[str, _Kind], devices: Mapping[str, int], sampled: Mapping[str, float]
) -> dict[_Kind, float]:
    """Return a device's rollout speed for each kind."""
    measured: dict[_Kind, list[float]] = defaultdict(list)
    for name, kind in kinds.items():
        if name in sampled:
            measured[kind].append(sampled[name] / devices[name])
    return _scaled(
        set(kinds.values()), {kind: fmean(speeds) for kind, speeds in measured.items()}, 1
    )


def _scaled(wanted: set[_Kind], seen: Mapping[_Kind, float], role: int) -> dict[_Kind, float]:
    """Return the seen speeds; for other kinds the model's speeds, scaled to the seen ones."""
    scale = fmean(speed / kind[role] for kind, speed in seen.items()) if seen else 1.0
    return {kind: seen.get(kind, scale * kind[role]) for kind in wanted}
