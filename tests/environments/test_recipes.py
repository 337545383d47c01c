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
    r"tries: \d+": "tries: 1",
    r"\ntrainer:\n": "\ntrainer:\n  filters: {}\n",
}
"""Settings of a recipe, and what a test sets instead: equal rewards are trained too."""
RECIPES = {
    "reasoning_gym": {"held_back"},
    "verifiers": {"held_back"},
    "textarena_self_play": set(),
    "swe_toy": {"held_back"},
    "llm_judge": {"held_back"},
}
"""Recipes, and the evaluation sets of each. Roles have none."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_a_real_model(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=RUNS))
    file = folder / "run.yaml"
    text = file.read_text()
    for long, short in FEWER.items():
        text = re.sub(long, short, text)
    file.write_text(text)
    seamlessflow(folder, "train", "--config", "run.yaml", **models(text))
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["checks"]["mismatches"]) == (STEPS, 0)
    assert summary["evaluations"].keys() == RECIPES[name]
    assert (folder / "out" / "reward.png").is_file()


def models(run: str) -> dict[str, str]:
    """Return the variables by which `scripts/recipes` names the models of a run."""
    model = str(real_model(SMOLLM2))
    judge = {"SEAMLESSFLOW_POLICIES__REFEREE__FROZEN": model} if "referee:" in run else {}
    return {"SEAMLESSFLOW_POLICY__MODEL": model, **judge}


def test_the_script_has_all_recipes() -> None:
    assert " ".join(RECIPES) in (ROOT / "scripts" / "recipes").read_text()
