"""The examples, each for two steps with the model of the demo, as their pages say."""

import re
import shutil
from pathlib import Path

import pytest

from tests.builders.example_runs import seamlessflow
from tests.paths import ROOT

pytestmark = pytest.mark.slow

STEPS = 2
EXAMPLES = {
    "hello": STEPS,
    "multi_turn_game": STEPS,
    "two_policies": 2 * STEPS,
    "judge": STEPS,
    "expert": STEPS,
    "lockstep": STEPS,
    "league": STEPS,
    "own_environment": STEPS,
}
"""Steps of each, which are those of all its policies together."""


@pytest.fixture(scope="module")
def checkout(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the examples, of few steps, and the model of the demo."""
    directory = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", directory / "examples")
    for file in (directory / "examples").glob("*/run.yaml"):
        file.write_text(re.sub(r"steps: \d+", f"steps: {STEPS}", file.read_text()))
    shutil.copytree(demo / "model", directory / ".seamlessflow" / "demo" / "model")
    return directory


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_trains(example: str, checkout: Path) -> None:
    printed = seamlessflow(checkout / "examples" / example, "train", "--config", "run.yaml")
    assert f"trained  {EXAMPLES[example]} steps" in printed


def test_sessions_of_one_example_are_the_beginnings_of_another(checkout: Path) -> None:
    recorded = checkout / "examples" / "tool_use"
    folder = checkout / "examples" / "from_a_recording"
    assert f"trained  {STEPS} steps" in seamlessflow(recorded, "train", "--config", "run.yaml")
    forks = ("--to", "forks.jsonl", "--after-tool-result", "last")
    seamlessflow(folder, "replay", "fork", "--out", "../tool_use/out", *forks)
    printed = seamlessflow(folder, "train", "--config", "run.yaml", PYTHONPATH=str(recorded))
    assert f"trained  {STEPS} steps" in printed


def test_each_example_has_at_most_four_files() -> None:
    """Methods have one for each seam, and no run."""
    folders = [
        path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "methods"
    ]
    counts = {
        path.name: len([file for file in path.iterdir() if file.is_file()]) for path in folders
    }
    assert {name: count for name, count in counts.items() if count > 4} == {}
