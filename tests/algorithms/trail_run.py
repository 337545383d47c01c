"""Configuration of a training on Trail through the whole system, as `seamlessflow train` reads it.

Called by the runs of `table.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.methods import OPTIMIZER, POLICY
from seamlessflow.demo.configuration import KV_BYTES, MAX_CONTEXT, START_TIMEOUT_S, TIMEOUTS

Values = Mapping[str, Any]

ASSIGNMENT_TIMEOUT_S = 300
"""On two busy cores a training process that was killed took more than a minute to come back."""


def trail_run(out: Path, data: Path, changes: Values) -> Values:
    """Return the configuration of a run in `out`; `data` has model and tasks.

    `benchmarks/trail/prepare.py` writes them.

    One worker rolls out and trains in turns. `changes` go over it, section by section.
    """
    values: dict[str, Any] = {
        "out": str(out),
        "workers": [{"id": "w0", "tags": ["rollout", "train"]}],
        "policy": {
            "model": str(data / "model"),
            "renderer": {"name": "qwen3"},
            "max_context": MAX_CONTEXT,
        },
        "run": {"id": POLICY, "policy": POLICY, "lag": 1},
        "pacing": {"tasks": str(data / "tasks" / "train.jsonl"), **TIMEOUTS},
        "agents": {"callable": "benchmarks.trail.agent:run", "name": POLICY, "concurrency": 64},
        "trainer": {"optimizer": OPTIMIZER, "threads": 1},
        "rollout": {
            "engine": "torch",
            "capacity": 64,
            "torch": {"threads": 1, "kv_bytes": KV_BYTES},
        },
        "scheduler": {"assignment_timeout_s": ASSIGNMENT_TIMEOUT_S},
        "start_timeout_s": START_TIMEOUT_S,
    }
    for section, change in changes.items():
        both = isinstance(change, Mapping) and isinstance(values.get(section), Mapping)
        values[section] = {**values[section], **change} if both else change
    return values


def write_run(values: Values) -> Path:
    """Write a configuration beside the directory of its run; return its file."""
    out = Path(values["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".yaml")  # JSON is YAML
    file.write_text(json.dumps(values, indent=1), encoding="utf-8")
    return file
