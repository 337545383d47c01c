"""The demo's run configurations, for both its models. Imports neither torch nor renderers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from seamlessflow.checks.check import before_demo, before_real_demo
from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.infra.rendering.settings import RendererSettings

POLICY = "demo"
MAX_CONTEXT = 512
"""Most tokens in prompt and completion together; an episode has 41."""
KV_BYTES = 256 * 1024**2
RENDERER = RendererSettings("qwen3")
HEAD_DIMS = {"torch": 16, "vllm": 32}
"""vLLM supports no narrower heads on a CPU; half as many heads keep the model's size."""
START_TIMEOUT_S = 600
"""One vLLM server starts in half a minute; two on two busy cores take several minutes."""
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
"""Most tokens in prompt and completion together; a session with SmolLM2 has about 42."""
SUMS_AGENTS = {"callable": "seamlessflow.demo.agent:calculate", "name": "sums", "concurrency": 128}
SUMS_OPTIMIZER = {"lr": 2e-5, "warmup_steps": 5}
SUMS_CHECKPOINTS = {"checkpoint_every": 20, "checkpoints_kept": 1}
"""Few, since a SmolLM2 checkpoint has 1.6 GB; they serve a trainer that is started again."""
SUMS_TIMEOUTS = {"task_timeout_s": 600, "group_timeout_s": 1800}


def divided(backend: str, ranks: int, tensor_parallel: int) -> Mapping[str, object]:
    """Return the trainer's settings for a model that one worker's ranks train together."""
    section: dict[str, object] = {"backend": backend, "ranks": ranks}
    if ranks > 1:
        section["devices"] = list(range(ranks))
    if backend == "megatron":
        section["megatron"] = {"tensor_parallel": tensor_parallel}
    return section


def adapted(rank: int) -> Mapping[str, object]:
    """Return the trainer's settings for an adapter with this rank; none for 0."""
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
    """Return the workers; a worker with several devices only trains: torch samples on one."""
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
