"""A demo's directory: an earlier run in it is set aside, then model and tasks are written.

A separate process writes them, so that the command line imports no torch.
"""

import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.locks import refuse_running
from seamlessflow.processes.specs import without_settings

_TIMEOUT_S = 600.0


def prepare_process(out: Path, seed: int, head_dim: int) -> Callable[[Launcher], float]:
    """Return a function that makes model and tasks in `out` and returns the warm-up's seconds."""

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


def set_aside(out: Path) -> Path | None:
    """Rename `out` to `out-1`, `out-2`, ...; return the new name, or None if `out` was empty.

    Raises `RunUnderWay`.
    """
    if not out.exists() or not any(out.iterdir()):
        return None
    refuse_running(out)
    kept = next(
        name for number in count(1) if not (name := out.with_name(f"{out.name}-{number}")).exists()
    )
    out.rename(kept)
    return kept
