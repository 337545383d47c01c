"""A whole run on one device: Kafka, gateway, manager, agents, and one worker in both roles."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.gpu.part import Asked, Figures, meets
from benchmarks.gpu.program import require_kafka, run_seamlessflow
from benchmarks.gpu.steps import usual_shape, write_shape
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.tokenizer import Tokenizer

LIMIT_S = 420.0
_KV_BYTES = 16 * 2**30
"""Enough for 280 turns of 512 tokens; on a CPU what is not used is not taken."""


def run(asked: Asked) -> Figures:
    """Return what the run's summary says about steps, devices, tokens and their log-probs."""
    require_kafka()
    directory = asked.directory
    write_policy(directory / "model", asked.small)
    tokens = 16 if asked.small else 256
    tasks = [{"id": str(number), "key": number % 10, "tokens": tokens} for number in range(64)]
    (directory / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (directory / "run.yaml").write_text(yaml.safe_dump(_settings(asked)))
    run_seamlessflow(["train", "--config", str(directory / "run.yaml")], LIMIT_S)
    summary = json.loads((directory / "out" / "summary.json").read_text())
    figures = _figures(summary)
    checks = summary["checks"]
    exact = not checks["mismatches"] and not checks["trained_twice"]
    meets(exact and checks["tokens_checked"] > 0, "the trained tokens are not the log's", figures)
    return figures


def write_policy(directory: Path, small: bool) -> None:
    """Write random weights for Qwen3-0.6B's body, or tiny ones, with the demo's tokenizer."""
    make_tokenizer(directory)
    tokenizer = Tokenizer.load(directory)
    write_shape(
        directory,
        usual_shape(small),
        torch.float32 if small else torch.bfloat16,
        vocab_size=tokenizer.vocabulary_size,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.token_id("<|endoftext|>"),
    )


def _settings(asked: Asked) -> Mapping[str, Any]:
    precision = "float32" if asked.small else "bfloat16"
    return {
        "out": str(asked.directory / "out"),
        "workers": [{"id": "w0", "tags": ["rollout", "train"], "device": asked.device}],
        "policy": {
            "model": str(asked.directory / "model"),
            "renderer": {"name": "qwen3"},
            "max_context": 256 if asked.small else 512,
        },
        "run": {"id": "gpu", "steps": 4 if asked.small else 8, **_groups(asked.small)},
        "pacing": {"tasks": str(asked.directory / "tasks.jsonl")},
        "agents": {"callable": "benchmarks.gpu.writer:run"},
        "rollout": {"engine": "torch", "torch": {"dtype": precision, "kv_bytes": _KV_BYTES}},
        "trainer": {"dtype": precision, "layout": "tree", "optimizer": {"lr": 1e-4}},
    }


def _groups(small: bool) -> Mapping[str, int]:
    return {"groups_per_step": 4 if small else 16, "group_size": 4 if small else 8}


def _figures(summary: Mapping[str, Any]) -> dict[str, object]:
    names = (
        "steps",
        "step_s",
        "ideal_step_s",
        "idle_share",
        "device_time",
        "role_switches",
        "train_wall_s",
        "tokens_sampled",
        "tokens_trained",
        "tokens_per_s",
        "phases",
        "interrupted_turns_continued",
        "logprob_mismatch_max",
        "reward_first10",
        "reward_last10",
        "peak_rss_mb",
        "restarts",
        "checks",
    )
    return {name: summary[name] for name in names}
