"""Devices by name: peak speed, memory bandwidth and memory of one device.

The figures are from NVIDIA's data sheets: dense (without sparsity) bf16 matrix operations, SXM
boards. H20 and H800 are export variants, with the figures that their vendors give.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import suggestion


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device."""

    name: str
    peak_flops: float
    """Dense bf16 matrix operations a second, in flop."""
    bandwidth: float
    """Bytes a second from its memory."""
    memory_bytes: float

    @property
    def figures(self) -> Mapping[str, float]:
        """The figures as `WorkerHeartbeat.hardware` has them."""
        return {
            "peak_flops": self.peak_flops,
            "bandwidth": self.bandwidth,
            "memory_bytes": self.memory_bytes,
        }


class UnknownPreset(SeamlessFlowError):
    """No device, or no model, has this name."""

    def __init__(self, kind: str, name: str, presets: Mapping[str, object]) -> None:
        self.kind = kind
        self.name = name
        near = suggestion(name, presets)
        super().__init__(f"no {kind} {name!r} is known; known are {', '.join(presets)}{near}")


HARDWARE: Mapping[str, Hardware] = {
    preset.name: preset
    for preset in (
        Hardware("H20", 148e12, 4.0e12, 96e9),
        Hardware("H100", 989e12, 3.35e12, 80e9),
        Hardware("H800", 989e12, 3.35e12, 80e9),
        Hardware("H200", 989e12, 4.8e12, 141e9),
        Hardware("A100", 312e12, 2.04e12, 80e9),
        Hardware("L40S", 362e12, 0.864e12, 48e9),
        Hardware("B200", 2250e12, 8.0e12, 180e9),
    )
}


def hardware_named(name: str) -> Hardware:
    """Return the device of that name. Raises `UnknownPreset`."""
    if name not in HARDWARE:
        raise UnknownPreset("device", name, HARDWARE)
    return HARDWARE[name]
