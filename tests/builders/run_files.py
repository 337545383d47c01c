"""Files of a run as a user has them: a model directory, tasks and an agent's module."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamlessflow.checks.check import before_training
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
