"""Parts, and what they have in common.

A part is a module in this folder, or in one below, with a function `run`. It returns figures,
raises `Lacks` if it cannot run here, and `Unmet` if a figure is not as it must be. A part that
takes long calls `so_far` with what it has measured, which stays if its time is up.
"""

import gc
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PARTS = {
    "real": "real_run",
    "shapes-1.5b": "shapes",
    "shapes-4b": "shapes",
    "weights": "weights",
    "shapes-8b": "shapes",
    "mismatch": "mismatch",
    "update": "update",
    "training": "training",
    "run": "whole_run",
    "memory": "memory",
    "roles": "roles",
    "parity": "parity",
    "vllm": "vllm.engine",
    "throughput": "vllm.throughput",
}
"""Each part's module, below this folder; the most valuable parts come first."""
LIMIT_S = 900.0
LIMITS_S = {
    "real": 420.0,
    "weights": 180.0,
    "shapes-1.5b": 120.0,
    "shapes-4b": 150.0,
    "shapes-8b": 240.0,
}
"""Seconds after which a part is ended, if they are not `LIMIT_S`."""
Figures = Mapping[str, object]
Result = Mapping[str, object]
"""A part's name, status, figures or reason, and machine."""


class Lacks(Exception):
    """Something that a part needs and that this machine lacks."""


class Unmet(Exception):
    """A figure that is not as it must be."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A part with its device and its own directory; `model` is for the part `real`."""

    device: str
    directory: Path
    small: bool
    part: str = ""
    model: Path | None = None

    @property
    def on_gpu(self) -> bool:
        """Return whether memory and times are a GPU's."""
        return self.device.startswith("cuda")


def parts_named(name: str) -> list[str]:
    """Return the part with that name, or all parts whose name goes on behind it with a hyphen."""
    return [part for part in PARTS if part == name or part.startswith(f"{name}-")]


def so_far(figures: Figures) -> None:
    """Print figures as a line, which is the result if the part does not come to its end."""
    print(json.dumps({"figures": figures}), flush=True)


def meets(condition: bool, text: str, figures: Figures) -> None:
    """Raise `Unmet` with all figures if a condition does not hold."""
    if not condition:
        raise Unmet(f"{text}: {json.dumps(figures)}")


def timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds that some work takes, on the device too."""
    began = time.perf_counter()
    work()
    wait_for(device)
    return time.perf_counter() - began


def wait_for(device: str) -> None:
    """Wait until a GPU has done what it was given."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def free_bytes(device: str) -> int:
    """Return a GPU's free memory; 0 for a CPU."""
    if not device.startswith("cuda"):
        return 0
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


class DeviceMemory:
    """The memory that this process takes on a GPU from now on; without figures on a CPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._on_gpu = device.startswith("cuda")
        self._before = 0
        if self._on_gpu:
            import torch

            gc.collect()  # an autograd graph may wait in a cycle
            torch.cuda.empty_cache()
            self._before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)

    def against(self, planned: float) -> dict[str, float]:
        """Return planned MiB, the peak so far in MiB, and the peak's ratio to the plan.

        What CUDA itself keeps is not among what torch has allocated: it must not be planned here.
        """
        figures: dict[str, float] = {"planned_mib": round(planned / 2**20)}
        if not self._on_gpu:
            return figures
        import torch

        peak = torch.cuda.max_memory_allocated(self._device) - self._before
        return {**figures, "peak_mib": round(peak / 2**20), "ratio": round(peak / planned, 2)}
