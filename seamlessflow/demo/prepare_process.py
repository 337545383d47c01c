"""Process that runs `seamlessflow.demo.prepare`, so that the command line imports no torch."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.specs import without_settings

_TIMEOUT_S = 600.0


def prepare_process(out: Path, seed: int, head_dim: int) -> Callable[[Launcher], float]:
    """Return a function that makes model and tasks in `out` and returns the seconds of warm-up."""

    def prepare(launcher: Launcher) -> float:
        spec = ChildSpec(
            name="warm-up",
            module="seamlessflow.demo.prepare",
            arguments=(str(out), "--seed", str(seed), "--head-dim", str(head_dim)),
            environment=without_settings(os.environ),
            finite=True,
        )
        launcher.run(spec, _TIMEOUT_S)
        took: float = json.loads((out / "warmup.json").read_text(encoding="utf-8"))["warmup_s"]
        return took

    return prepare
