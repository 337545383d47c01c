"""Parts, and that which they have in common.

A part is a module of this folder, or of one below, with a function `run`. It returns figures,
raises `Lacks` if it cannot run here, and `Unmet` if a figure is not as it must be.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_OWN = ("parity", "mismatch", "memory", "roles", "update", "training")
PARTS = {
    **{name: name for name in _OWN},
    "run": "whole_run",
    "vllm": "vllm.engine",
    "throughput": "vllm.throughput",
}
"""Module of each part, below this folder."""
Figures = Mapping[str, object]


class Lacks(Exception):
    """Something that a part needs and that this machine has not."""


class Unmet(Exception):
    """A figure that is not as it must be."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The device of a part, and a directory of its own."""

    device: str
    directory: Path
    small: bool

    @property
    def on_gpu(self) -> bool:
        """Return whether memory and times are those of a GPU."""
        return self.device.startswith("cuda")


def meets(condition: bool, text: str, figures: Figures) -> None:
    """Raise `Unmet` with all figures if a condition does not hold."""
    if not condition:
        raise Unmet(f"{text}: {json.dumps(figures)}")


def timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds of some work, on the device too."""
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
    """Return the free memory of a GPU; 0 for a CPU."""
    if not device.startswith("cuda"):
        return 0
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])
