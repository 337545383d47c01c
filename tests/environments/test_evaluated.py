"""The example `verifiers` with a real model, evaluated from the command line without a training."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.example_runs import seamlessflow
from tests.builders.real_models import SMOLLM2, real_model
from tests.paths import ROOT

TURNS = 3


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return the folder of the example."""
    folder = tmp_path / "verifiers"
    shutil.copytree(ROOT / "examples" / "verifiers", folder, ignore=shutil.ignore_patterns("out"))
    return folder


def evaluate(folder: Path, *arguments: str) -> str:
    """Evaluate the example's model; return what was printed."""
    model = str(real_model(SMOLLM2))
    command = ("eval", "--config", "run.yaml", *arguments)
    return seamlessflow(folder, *command, SEAMLESSFLOW_POLICY__MODEL=model)


def figures(folder: Path) -> dict[str, Any]:
    """Return the figures of the evaluation."""
    return dict(json.loads((folder / "out/evaluations/1/evaluation.json").read_text()))


def returns(folder: Path) -> list[list[float]]:
    """Return the rewards of its sessions, task by task."""
    lines = (folder / "out/evaluations/1/tasks.jsonl").read_text().splitlines()
    return [json.loads(line)["returns"] for line in lines]


def test_tasks_of_other_settings_are_named_on_the_command_line(example: Path) -> None:
    named = 'environment:select={"include":{"idx":["100:103"]}}'
    printed = evaluate(example, "--tasks", named, "--samples", "2", "--limit", "2")
    seen = figures(example)
    assert (seen["sessions"], seen["failed"], seen["turns"]) == (4, 0, TURNS)
    assert [len(rewards) for rewards in returns(example)] == [2, 2]
    assert 0 < seen["reward"] <= 1
    assert f"{seen['reward']:.4f}" in printed
