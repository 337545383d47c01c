"""The demo's directory, and run configurations of both its models.

An earlier run in the directory is set aside. A process of its own writes model and tasks, so that
the command line imports neither torch nor renderers.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from seamlessflow.checks.check import before_demo, before_real_demo
from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.locks import refuse_running
from seamlessflow.processes.specs import without_settings

if TYPE_CHECKING:  # it brings Kafka's client, which the check of a run does not need
    from seamlessflow.processes.launcher import Launcher

POLICY = "demo"
MAX_CONTEXT = 512
"""Most tokens of prompt and completion together; an episode has 41."""
KV_BYTES = 256 * 1024**2
RENDERER = RendererSettings("qwen3")
HEAD_DIMS = {"torch": 16, "vllm": 32}
"""vLLM supports no narrower heads on a CPU; half as many heads keep the model's size."""
START_TIMEOUT_S = 600
ASSIGNMENT_TIMEOUT_S = {"torch": 120, "vllm": 600}
"""One vLLM server starts in half a minute, two of them on two busy cores in several."""
WORKERS = ({"id": "w0", "tags": ["rollout"]}, {"id": "w1", "tags": ["rollout", "train"]})
ONE_DEVICE: Mapping[str, object] = {"backend": "torch", "ranks": 1}
GROUPS = {"groups_per_step": 8, "group_size": 8}
AGENTS = {"callable": "seamlessflow.demo.agent:run", "name": "demo", "concurrency": 128}
OPTIMIZER = {"lr": 1e-3, "warmup_steps": 10}
ADAPTER_LR = 5e-3
"""An adapter has few weights, whose first ones are 0: it needs a larger rate than a whole model."""
TIMEOUTS = {"task_timeout_s": 60, "group_timeout_s": 180}
VLLM_ARGUMENTS = ("--enforce-eager", "--stream-interval=8")

SUMS_CONTEXT = 256
"""Most tokens of prompt and completion together; a session of SmolLM2 has about 42."""
SUMS_AGENTS = {"callable": "seamlessflow.demo.agent:calculate", "name": "sums", "concurrency": 128}
SUMS_OPTIMIZER = {"lr": 2e-5, "warmup_steps": 5}
SUMS_CHECKPOINTS = {"checkpoint_every": 20, "checkpoints_kept": 1}
"""Few, since one of SmolLM2 has 1.6 GB; they serve a trainer that is started again."""
SUMS_TIMEOUTS = {"task_timeout_s": 600, "group_timeout_s": 1800}


def divided(backend: str, ranks: int, tensor_parallel: int) -> Mapping[str, object]:
    """Return the trainer's settings of a model that is trained by so many ranks of one worker."""
    section: dict[str, object] = {"backend": backend, "ranks": ranks}
    if ranks > 1:
        section["devices"] = list(range(ranks))
    if backend == "megatron":
        section["megatron"] = {"tensor_parallel": tensor_parallel}
    return section


def adapted(rank: int) -> Mapping[str, object]:
    """Return the trainer's settings of an adapter of this rank; none for 0."""
    if not rank:
        return {}
    return {"adapter": {"rank": rank}, "optimizer": {**OPTIMIZER, "lr": ADAPTER_LR}}


def demo_config(
    out: Path, steps: int, seed: int, engine: str, trainer: Mapping[str, object] = ONE_DEVICE
) -> RunConfig:
    """Return a run with two workers: `w0` rolls out, `w1` rolls out and trains in turns.

    `trainer` has the trainer's settings. With several ranks `w1` only trains. Environment variables
    override it, as they do a file. Raises `ConfigRejected`.
    """
    return parse(
        {
            "out": out,
            "workers": _workers(trainer.get("devices")),
            "policy": {"model": out / "model", "renderer": RENDERER, "max_context": MAX_CONTEXT},
            "run": {"id": "demo", "policy": POLICY, "steps": steps, "lag": 1, **GROUPS},
            "pacing": {"tasks": out / "tasks" / "train.jsonl", "seed": seed, **TIMEOUTS},
            "agents": AGENTS,
            "trainer": {"optimizer": OPTIMIZER, "seed": seed, "threads": 1, **trainer},
            "rollout": _rollout(engine),
            "scheduler": {"assignment_timeout_s": ASSIGNMENT_TIMEOUT_S[engine]},
            "start_timeout_s": START_TIMEOUT_S,
        },
        check=before_demo,
    )


def sums_config(out: Path, model: str, steps: int, seed: int) -> RunConfig:
    """Return a run with one worker, which rolls out a real model and trains it in turns.

    `model`: as `policy.model`. Environment variables override the run's settings, as they do a
    file's. Raises `ConfigRejected`.
    """
    return parse(
        {
            "out": out,
            "workers": [{"id": "w0", "tags": ["rollout", "train"]}],
            "policy": {"model": model, "max_context": SUMS_CONTEXT},
            "run": {"id": "demo", "policy": POLICY, "steps": steps, "lag": 1, **GROUPS},
            "pacing": {"tasks": out / "tasks" / "train.jsonl", "seed": seed, **SUMS_TIMEOUTS},
            "agents": SUMS_AGENTS,
            "trainer": {"optimizer": SUMS_OPTIMIZER, "seed": seed, **SUMS_CHECKPOINTS},
            "rollout": {"capacity": 64},
            "start_timeout_s": START_TIMEOUT_S,
        },
        check=before_real_demo,
    )


def _workers(devices: object) -> Sequence[Mapping[str, object]]:
    """Return the workers; one of several devices only trains: torch samples on one."""
    if devices is None:
        return WORKERS
    return (WORKERS[0], {"id": "w1", "tags": ["train"], "device": "cpu", "devices": devices})


def _rollout(engine: str) -> dict[str, object]:
    shared = {"threads": 1, "kv_bytes": KV_BYTES}
    return {
        "engine": engine,
        "capacity": 64,
        "torch": shared,
        "vllm": {**shared, "arguments": VLLM_ARGUMENTS},
    }


_TIMEOUT_S = 600.0


def prepare_process(out: Path, seed: int, head_dim: int) -> "Callable[[Launcher], float]":
    """Return a function that makes model and tasks in `out` and returns the seconds of warm-up."""

    def prepare(launcher: "Launcher") -> float:
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
