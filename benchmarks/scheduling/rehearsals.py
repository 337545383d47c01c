"""Rehearsals of the four pipelines: real software on 8 and on 32 modelled devices."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.load.children import ROOT
from benchmarks.scheduling.cells import BOTH, HARDWARE, MODEL, PIPELINES, Pipeline
from seamlessflow.demo.model import make_model
from seamlessflow.demo.task import make_tasks, write_tasks
from seamlessflow.infra.errors import ExitStatus

_CLUSTERS = {8: (4, 2), 32: (4, 8)}
"""Workers, and devices of each, by devices in all; half the workers train."""
_STEPS, _TASKS, _GROUPS, _CAPACITY = 6, 400, 32, 32
_TURN_TOKENS, _SPREAD = 2_000, 0.6
_LIMIT_S = 1_800
_SMALL_MODEL = "Qwen3-8B"
"""Model for workers with two devices."""


def rehearsed(out: Path) -> dict[str, object]:
    """Return the steps by devices and pipeline, from rehearsals one after the other in `out`.

    Each is `seamlessflow rehearse`, with its own verdict on this machine. A rehearsal that is in
    `out` is not made again.
    """
    make_model(out / "model", seed=0)
    write_tasks(make_tasks(_TASKS, 0, "train"), out / "tasks.jsonl")
    rehearsals: dict[str, object] = {}
    for devices in _CLUSTERS:
        for pipeline in PIPELINES:
            name = f"{devices} devices, {pipeline.name}"
            print(name, file=sys.stderr, flush=True)
            rehearsals[name] = _rehearsed(out / name.replace(", ", "-").replace(" ", "-"), pipeline)
            print(rehearsals[name], file=sys.stderr, flush=True)
    (out / "rehearsals.json").write_text(f"{json.dumps(rehearsals, indent=1)}\n", encoding="utf-8")
    return rehearsals


def _rehearsed(folder: Path, pipeline: Pipeline) -> Mapping[str, object]:
    """Return a rehearsal's figures. Raises `CalledProcessError` if it does not end.

    A rehearsal that this machine distorted has figures too, with the reasons.
    """
    result = folder / "rehearsal" / "rehearsal.json"
    if not result.exists() or "distorted" not in result.read_text(encoding="utf-8"):
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "run.yaml"  # JSON is YAML
        config.write_text(json.dumps(configuration(folder, pipeline)), encoding="utf-8")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "seamlessflow", "rehearse", "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdout=sys.stderr,
            timeout=_LIMIT_S,
        )
        if done.returncode != ExitStatus.LASTING or not result.exists():
            done.check_returncode()
    verdict = json.loads(result.read_text(encoding="utf-8"))
    summary = json.loads((result.parent / "summary.json").read_text(encoding="utf-8"))
    return {
        "step_s": summary["step_s"],
        "ideal_step_s": summary["ideal_step_s"],
        "device_time": summary["device_time"],
        "switches": summary["role_switches"],
        "distorted": verdict["distorted"],
    }


def configuration(folder: Path, pipeline: Pipeline) -> Mapping[str, object]:
    """Return the configuration for a rehearsal in a folder named after its device count."""
    count, devices = _CLUSTERS[int(folder.name.split("-")[0])]
    colocated = pipeline.strategy == "colocated"
    tags = [pipeline.trains if colocated or n < count // 2 else BOTH[:1] for n in range(count)]
    return {
        "out": str(folder),
        "workers": [
            {"id": f"w{n}", "tags": roles, "device": "cuda", "devices": list(range(devices))}
            for n, roles in enumerate(tags)
        ],
        "policy": {
            "model": str(folder.parent / "model"),
            "renderer": {"name": "qwen3"},
            "max_context": 16_384,
        },
        "run": {
            "steps": _STEPS,
            "lag": pipeline.lag,
            "groups_per_step": _GROUPS,
            "group_size": 8,
        },
        "pacing": {"tasks": str(folder.parent / "tasks.jsonl"), "task_timeout_s": 600},
        "agents": {
            "callable": "benchmarks.load.agents:whole",
            "name": "answer",
            "concurrency": (pipeline.lag + 1) * _GROUPS * 8,
        },
        "trainer": {"backend": "fsdp2", "ranks": devices * sum("train" in roles for roles in tags)},
        "rollout": {
            "engine": "vllm",
            "capacity": _CAPACITY,
            "clock": {"turn_tokens": _TURN_TOKENS, "spread": _SPREAD},
        },
        "scheduler": {"policy": pipeline.strategy},
        "device_model": {
            "hardware": HARDWARE,
            "model": MODEL if devices > 2 else _SMALL_MODEL,
        },
    }
