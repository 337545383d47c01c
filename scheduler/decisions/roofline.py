"""Speed of a device in each role: the roofline model, corrected by measurements. Pure.

Attainable speed = min(peak, arithmetic intensity x memory bandwidth); Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model", CACM 2009. Training is bound by the
peak, decoding by the bandwidth. So the ratio of the two speeds shows which worker training gains
most from and rollout misses least. Called by `scheduler/decisions/snapshot.py`.
"""

from collections.abc import Mapping
from functools import cache

PEAK = "peak_flops"
"""Key of `WorkerHeartbeat.hardware`: dense matrix operations a second, in flop."""
BANDWIDTH = "bandwidth"
"""Key of `WorkerHeartbeat.hardware`: bytes a second from the device's memory."""
INTENSITY = {"train": 512.0, "rollout": 16.0}
"""Operations for each byte moved: a training micro-batch, and a decoding step of some ten turns."""


def attainable(hardware: Mapping[str, float]) -> Mapping[str, float]:
    """Return the flop/s that the device can reach in each role, or 1 if its figures are unknown."""
    return _attainable(hardware.get(PEAK), hardware.get(BANDWIDTH))


@cache
def _attainable(peak: float | None, bandwidth: float | None) -> Mapping[str, float]:
    performance = {}
    for role, intensity in INTENSITY.items():
        bound = None if bandwidth is None else intensity * bandwidth
        limits = [value for value in (peak, bound) if value is not None and value > 0]
        performance[role] = min(limits) if limits else 1.0
    return performance


def ratios(
    modelled: Mapping[str, Mapping[str, float]], measured: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return training speed over rollout speed for each worker; those with a higher one train.

    `modelled` has the speeds of a device in flop/s, by worker and role; `measured` those in
    tokens/s by role and worker, where they were.
    """
    gains = {role: _gain(modelled, speeds, role) for role, speeds in measured.items() if speeds}
    # A role that no worker has shown yet gains as much as the other, or the ratio had a unit.
    train, rollout = (
        _calibrated(modelled, measured.get(role, {}), role, gains.get(role, gains.get(other, 1.0)))
        for role, other in (("train", "rollout"), ("rollout", "train"))
    )
    return {name: train[name] / rollout[name] for name in modelled}


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
    """Return measured speeds, and for the other workers the model times `gain`, so that tokens/s
    and flop/s can be compared.
    """
    return {
        name: measured[name] if name in measured else gain * speeds[role]
        for name, speeds in modelled.items()
    }
