"""The step of a gang: each worker's part of an optimizer step, and the slowest, in seconds. Pure.

All workers wait for the slowest. The simulator (`lab/simulation/trainer.py`) asks for the whole
gang, and each clock back end (`trainer/backends/clock_backend.py`) for its own worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.infra.device_model.rates import Rates


@dataclass(frozen=True, slots=True)
class GangMember:
    """A worker of a gang."""

    rates: Rates
    devices: int


@dataclass(frozen=True, slots=True)
class GangStep:
    """The times of a step."""

    parts_s: Mapping[str, float]
    """Each worker's part with the fixed part of a step, by name."""

    @property
    def slowest_s(self) -> float:
        """Return the longest part, until which all wait."""
        return max(self.parts_s.values())


def gang_step(
    members: Mapping[str, GangMember], devices: int, lengths: Sequence[float], step_s: float
) -> GangStep:
    """Return the step of workers, by name, on sequences of these lengths.

    They are some or all workers of a gang of `devices`. Each device gets an equal part. `step_s` is
    the fixed part of a step.
    """
    # Workers are mostly alike, and a step has many sequences.
    parts_s = {
        member: step_s + member.rates.part(lengths, member.devices, devices)
        for member in set(members.values())
    }
    return GangStep({name: parts_s[member] for name, member in members.items()})
