"""How fast a device can be at a role: the roofline, corrected by what was measured.

Attainable speed = min(peak, arithmetic intensity x memory bandwidth); Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model", CACM 2009. Training is bound by the
peak, decoding by the bandwidth, so the ratio of both says which worker training profits from most
and rollout misses least. Pure; called by `scheduler/decisions/snapshot.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PEAK = "peak_flops"
"""Key of `WorkerHeartbeat.hardware`: dense matrix operations a second, in flop."""
BANDWIDTH = "bandwidth"
"""Key of `WorkerHeartbeat.hardware`: bytes a second from the device's memory."""
INTENSITY = {"train": 512.0, "rollout": 16.0}
"""Operations for each byte moved: a training micro-batch, and a decoding step of some ten turns."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Speed of a worker in each role: modelled in flop/s, measured in tokens/s where it was."""

    modelled: Mapping[str, float]
    measured: Mapping[str, float]


def attainable(hardware: Mapping[str, float], role: str) -> float:
    """Flop/s that the device can reach in the role; 1 when nothing is known of it."""
    peak, bandwidth = hardware.get(PEAK), hardware.get(BANDWIDTH)
    bound = None if bandwidth is None else INTENSITY[role] * bandwidth
    known = [value for value in (peak, bound) if value is not None and value > 0]
    return min(known) if known else 1.0


def ratios(workers: Mapping[str, Speeds]) -> dict[str, float]:
    """Training speed over rollout speed for each worker; higher is better placed in training."""
    train, rollout = (_calibrated(workers, role) for role in ("train", "rollout"))
    return {name: train[name] / rollout[name] for name in workers}


def _calibrated(workers: Mapping[str, Speeds], role: str) -> dict[str, float]:
    """Measured speeds; the others are scaled as the measured ones turned out against the model."""
    gains = [
        speeds.measured[role] / speeds.modelled[role]
        for speeds in workers.values()
        if role in speeds.measured
    ]
    scale = sum(gains) / len(gains) if gains else 1.0
    return {
        name: speeds.measured.get(role, scale * speeds.modelled[role])
        for name, speeds in workers.items()
    }
