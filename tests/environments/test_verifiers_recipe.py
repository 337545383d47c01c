"""The example `verifiers`, for a few steps of the demo's model."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.demo.model import make_model, warm_up
from tests.paths import ROOT

STEPS = 2
LIMIT_S = 400
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


def test_a_task_set_of_ones_own_trains_and_is_evaluated(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "train", "--config", "run.yaml"],
        cwd=checkout,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"trained  {STEPS} steps" in done.stdout
    summary = json.loads((checkout / "out" / "summary.json").read_text())
    assert summary["checks"]["mismatches"] == 0
    assert "held_back" in json.dumps(summary)
