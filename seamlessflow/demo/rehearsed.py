"""The demo's rehearsal: a run with a real model's size on eight modelled devices, by a strategy.

Training this model takes four devices' memory. So half the devices must train, although most work
is sampling, and no fixed split fits it. Imports no torch, and renderers only in `write_work`.
"""

import json
from pathlib import Path

from seamlessflow.checks.check import before_training
from seamlessflow.config import RunConfig
from seamlessflow.config_file import Check, parse
from seamlessflow.demo.configuration import POLICY, RENDERER
from seamlessflow.device_defaults import by_modelled_devices
from seamlessflow.named_models import Fetched

STRATEGIES = {"disaggregated": ("train",), "multiplexed": ("rollout", "train")}
"""Strategies that are rehearsed, in this order, with the tags of the workers that train."""
STEPS = 8
SCALE = 0.07
"""Factor on the devices' times: with less, two processors are too slow for the software."""
DEVICES = 8
TRAINING_DEVICES = 4
DEVICE_MODEL = {"hardware": "A100", "model": "Qwen3-14B"}
GROUPS = {"groups_per_step": 4, "group_size": 8}
EXTRA_GROUPS = 0.5
STALENESS = {"max_staleness": 2}
"""With extra groups, tokens are older than the lag; none is left out."""
CAPACITY = 4
"""Turns that a device samples at once: few, so that few sessions keep all devices busy."""
LENGTHS = {"turn_tokens": 3_000, "spread": 0.3, "most_tokens": 8_000}
MAX_CONTEXT = 10_000
"""Most tokens in prompt and completion together; a prompt has about 20."""
AGENTS = {"callable": "seamlessflow.demo.agent:ask_once", "name": "rehearsed", "concurrency": 128}
TIMEOUTS = {"task_timeout_s": 300, "group_timeout_s": 600}
TASKS = 1_000
_WORK = "work"
"""Folder in the output with what both rehearsals read."""
_SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": MAX_CONTEXT,
}
"""Shape of a model that has no weights: only its tokenizer is used."""


def rehearsed_config(
    out: Path,
    strategy: str,
    steps: int = STEPS,
    seed: int = 0,
    check: Check | None = before_training,
) -> RunConfig:
    """Return a run on modelled devices in `out` / `strategy`, with the work from `write_work`.

    Half the devices train. Environment variables override it, as they do a file. Raises
    `ConfigRejected`.
    """
    training = {"backend": "clock", "device": "cpu", "ranks": TRAINING_DEVICES, **STALENESS}
    pacing = {"seed": seed, "extra_groups": EXTRA_GROUPS, **TIMEOUTS}
    work = out / _WORK
    clock = {**LENGTHS, "seed": seed, "workers_a_process": DEVICES}
    return parse(
        {
            "out": out / strategy,
            "workers": [_worker(number, STRATEGIES[strategy]) for number in range(DEVICES)],
            "policy": {"model": work / "model", "renderer": RENDERER, "max_context": MAX_CONTEXT},
            "run": {"id": "rehearsed", "policy": POLICY, "steps": steps, "lag": 1, **GROUPS},
            "pacing": {"tasks": work / "tasks.jsonl", **pacing},
            "agents": AGENTS,
            "trainer": training,
            "rollout": {"engine": "clock", "capacity": CAPACITY, "clock": clock},
            "scheduler": {"policy": strategy},
            "device_model": {**DEVICE_MODEL, "scale": SCALE},
        },
        check=check,
        fill=by_modelled_devices,
        fetched=Fetched.NONE,
    )


def write_work(out: Path, seed: int) -> None:
    """Write tasks, a tokenizer and a model's shape into `out`. Raises `OSError`."""
    from seamlessflow.demo.task import make_tasks, write_tasks
    from seamlessflow.demo.tokenizer import make_tokenizer

    model = out / _WORK / "model"
    make_tokenizer(model)
    write_tasks(make_tasks(TASKS, seed, "train"), out / _WORK / "tasks.jsonl")
    tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    words = len(tokenizer["model"]["vocab"]) + len(tokenizer["added_tokens"])
    shape = json.dumps({**_SHAPE, "vocab_size": words}, indent=2)
    (model / "config.json").write_text(f"{shape}\n", encoding="utf-8")


def _worker(number: int, training: tuple[str, ...]) -> dict[str, object]:
    tags = training if number < TRAINING_DEVICES else ("rollout",)
    return {"id": f"w{number}", "tags": tags}
