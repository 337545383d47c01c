"""The example `verifiers`, for a few steps of the demo's model, and evaluations of what it made."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.demo.model import make_model, warm_up
from tests.builders.example_runs import seamlessflow
from tests.paths import ROOT

STEPS = 2
HELD_BACK = 16
"""Tasks of the set that the example holds back."""
FEWER = {r"\bsteps: \d+": f"steps: {STEPS}", r"every: \d+": f"every: {STEPS}"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the example, with fewer steps, and the demo's model in its place."""
    directory = tmp_path_factory.mktemp("checkout")
    model = directory / ".seamlessflow" / "demo" / "model"
    model.mkdir(parents=True)
    make_model(model, seed=0)
    warm_up(model, 0, lambda step, steps, loss: None)
    folder = directory / "examples" / "verifiers"
    shutil.copytree(ROOT / "examples" / "verifiers", folder)
    file = folder / "run.yaml"
    text = file.read_text()
    for long, short in FEWER.items():
        text = re.sub(long, short, text)
    file.write_text(text)
    return folder


@pytest.fixture(scope="module")
def printed(checkout: Path) -> str:
    """Return what a training in that folder printed."""
    return seamlessflow(checkout, "train", "--config", "run.yaml")


def evaluated(checkout: Path, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures of an evaluation, and what it has of each task."""
    folder = checkout / "out" / "evaluations" / str(number)
    lines = (folder / "tasks.jsonl").read_text().splitlines()
    return json.loads((folder / "evaluation.json").read_text()), [json.loads(li) for li in lines]


def test_a_task_set_of_ones_own_trains_and_is_evaluated(checkout: Path, printed: str) -> None:
    assert f"trained  {STEPS} steps" in printed
    summary = json.loads((checkout / "out" / "summary.json").read_text())
    assert summary["checks"]["mismatches"] == 0
    assert "held_back" in json.dumps(summary)


@pytest.mark.usefixtures("printed")
def test_its_held_back_set_is_evaluated_from_the_command_line(checkout: Path) -> None:
    table = seamlessflow(checkout, "eval", "--config", "run.yaml")
    print(table)
    print(evaluated(checkout, 1))
    assert "held_back" in table


@pytest.mark.usefixtures("printed")
def test_tasks_of_other_settings_are_evaluated_by_their_name(checkout: Path) -> None:
    tasks = 'environment:select={"include":{"idx":["100:104"]}}'
    table = seamlessflow(checkout, "eval", "--config", "run.yaml", "--tasks", tasks)
    print(table)
    print(evaluated(checkout, 2))
