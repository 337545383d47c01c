"""The recipes of `examples/`, each for a few steps of a real model."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.builders.example_runs import seamlessflow
from tests.builders.real_models import SMOLLM2, real_model
from tests.paths import ROOT

RUNS = shutil.ignore_patterns("out")
STEPS = 2
FEWER = {
    r"\bsteps: \d+": f"steps: {STEPS}",
    r"groups_per_step: \d+": "groups_per_step: 2",
    r"group_size: \d+": "group_size: 4",
    r"size=\d+": "size=4",
    r"\ntrainer:\n": "\ntrainer:\n  filters: {}\n",
}
"""Settings of a recipe, and what a test sets instead: equal rewards are trained too."""


@pytest.mark.parametrize("name", ["reasoning_gym"])
def test_a_recipe_trains_a_real_model(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=RUNS))
    file = folder / "run.yaml"
    text = file.read_text()
    for long, short in FEWER.items():
        text = re.sub(long, short, text)
    file.write_text(text)
    model = str(real_model(SMOLLM2))
    seamlessflow(folder, "train", "--config", "run.yaml", SEAMLESSFLOW_POLICY__MODEL=model)
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["checks"]["mismatches"]) == (STEPS, 0)
    assert summary["evaluations"].keys() == {"held_back"}
    assert (folder / "out" / "reward.png").is_file()
