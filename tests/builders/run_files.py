"""Files of a run as a user has them: a model directory, tasks and an agent's module."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamlessflow.checks.check import before_evaluation, before_training
from seamlessflow.config_file import Check, ConfigRejected, parse
from seamlessflow.demo.tokenizer import make_tokenizer

AGENT = """
async def run(task, session):
    return 1.0

def judge(task, result):
    return 1.0

def strategy(snapshot):
    return []
"""


NO_TENSORS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file without a tensor."""


def model_directory(directory: Path) -> Path:
    """Write a directory that has all files of a model; the weights are of no tensors."""
    make_tokenizer(directory)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(NO_TENSORS)
    return directory


def run_values(folder: Path) -> Mapping[str, Any]:
    """Write model, tasks and agent to a folder; return the configuration that names them."""
    (folder / "tasks.jsonl").write_text(json.dumps({"id": "1"}))
    (folder / "my_agent.py").write_text(AGENT)
    return {
        "out": folder / "out",
        "policy": {"model": model_directory(folder / "model")},
        "pacing": {"tasks": folder / "tasks.jsonl"},
        "agents": {"callable": "my_agent:run"},
    }


def changed(values: Mapping[str, Any], section: str, **more: object) -> Mapping[str, Any]:
    """Return the configuration with more in a section."""
    return {**values, section: {**values.get(section, {}), **more}}


def faults(values: Mapping[str, Any], check: Check = before_training) -> Sequence[str]:
    """Return the lines of all faults of a configuration."""
    try:
        parse(values, check=check)
    except ConfigRejected as refused:
        return refused.faults
    return ()


QWEN3_8B: Mapping[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40_960,
}


def model_headers(directory: Path, **changes: Any) -> Path:
    """Write the directory of a model of the form of Qwen3-8B; its file is empty but for a header.

    `changes` are those of its configuration; None leaves a key out.
    """
    directory.mkdir(parents=True, exist_ok=True)
    model_directory(directory)
    config = {**QWEN3_8B, **changes}
    tensors, end = {}, 0
    for name, shape in _shapes({**QWEN3_8B, **{k: v for k, v in changes.items() if v}}).items():
        begin, end = end, end + 2 * math.prod(shape)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(tensors).encode()
    kept = {name: value for name, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(kept))
    file = directory / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    # Without blocks on the disk.
    os.truncate(file, 8 + len(header) + end)
    return directory


def _shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    width = config["head_dim"]
    queries, keys = (config[f"num_{kind}_heads"] * width for kind in ("attention", "key_value"))
    shapes = {
        "model.embed_tokens.weight": [config["vocab_size"], hidden],
        "model.norm.weight": [hidden],
        "lm_head.weight": [config["vocab_size"], hidden],
    }
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": [queries, hidden],
            f"{layer}.self_attn.k_proj.weight": [keys, hidden],
            f"{layer}.self_attn.v_proj.weight": [keys, hidden],
            f"{layer}.self_attn.o_proj.weight": [hidden, queries],
            f"{layer}.self_attn.q_norm.weight": [width],
            f"{layer}.self_attn.k_norm.weight": [width],
            f"{layer}.mlp.gate_proj.weight": [inner, hidden],
            f"{layer}.mlp.up_proj.weight": [inner, hidden],
            f"{layer}.mlp.down_proj.weight": [hidden, inner],
            f"{layer}.input_layernorm.weight": [hidden],
            f"{layer}.post_attention_layernorm.weight": [hidden],
        }
    return shapes


def evaluation(weights: Path = Path("model"), tasks: Path | None = None) -> Check:
    """Return the check of an evaluation of weights, by default those that the model begins with."""
    return lambda config: before_evaluation(config, weights.absolute(), tasks)
