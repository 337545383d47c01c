"""One part, run by `python -m benchmarks.gpu.part NAME`, and that which parts have in common.

A part is a module of this folder, or of one below, with a function `run`. It returns figures,
raises `Lacks` if it cannot run here, and `Unmet` if a figure is not as it must be.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_OWN = ("parity", "mismatch", "memory", "roles", "update", "training")
PARTS = {**{name: name for name in _OWN}, "vllm": "vllm.engine", "throughput": "vllm.throughput"}
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


def main() -> None:
    """Run the part that the first argument names; print its result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = _result(given.part, Asked(given.device, Path(directory), given.small))
    print(json.dumps({"part": given.part, **result, **_machine(given.device)}))


def _result(part: str, asked: Asked) -> dict[str, object]:
    try:
        figures = import_module(f"benchmarks.gpu.{PARTS[part]}").run(asked)
    except ImportError as error:
        # A GPU machine may have torch and little else.
        return {"status": "skipped", "reason": f"lacks {error.name}"}
    except Lacks as error:
        return {"status": "skipped", "reason": f"lacks {error}"}
    except Unmet as error:
        return {"status": "failed", "reason": str(error)}
    return {"status": "passed", "figures": figures}


def _machine(device: str) -> dict[str, object]:
    import torch

    on_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name(device) if on_gpu else torch.backends.cpu.get_cpu_capability()
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
