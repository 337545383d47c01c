"""The demo of a model from elsewhere as a user starts it, with a tiny one that guesses."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.model import NOT_TRAINED, flat, imitate, make_model
from seamlessflow.demo.sums import SumTask, dialogue, sum_tasks
from seamlessflow.infra.rendering.renderer import Renderer

pytestmark = pytest.mark.slow

LIMIT_S = 600
STEPS = 2
WARM_UP_STEPS = 40
EPISODES = 32


def make_guesser(directory: Path) -> None:
    """Write a model that answers with a number, sometimes the right one."""
    make_model(directory, seed=0)
    renderer = Renderer.load(directory, RENDERER)
    tasks = sum_tasks("train", 0)
    draw = random.Random(0)

    def episode(task: SumTask) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = renderer.render(dialogue(task))
        answer = renderer.encode(f"{task['answer']}<|im_end|>")
        ids, targets = flat([(prompt, False), (answer, True)])
        return torch.tensor(ids), torch.tensor(targets)

    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        episodes = [episode(task) for task in draw.choices(tasks, k=size)]
        # What stands behind an answer changes nothing of it.
        ids_BT = pad_sequence([ids for ids, _ in episodes], batch_first=True)
        targets = [targets for _, targets in episodes]
        return ids_BT, pad_sequence(targets, batch_first=True, padding_value=NOT_TRAINED)

    imitate(directory, batch, lambda step, steps, loss: None, WARM_UP_STEPS, EPISODES)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory of a demo that has ended, and what it said."""
    directory = tmp_path_factory.mktemp("real")
    make_guesser(directory / "model")
    out = directory / "out"
    out.mkdir()
    (out / "earlier").touch()
    options = ["--real", str(directory / "model"), "--out", str(out), "--steps", str(STEPS)]
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "demo", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def summary(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return read


def test_the_held_back_sums_are_evaluated_before_and_after_and_said_at_once(
    ended: tuple[Path, str],
) -> None:
    out, said = ended
    count = len(sum_tasks("eval", 0))
    for when in ("before", "after"):
        reward = summary(out)[f"eval_{when}"]
        line = f"held-back tasks {when} the training: mean reward {reward:.4f}"
        assert line in said
        assert (
            f" over {count} sessions (0 failed, 0 missing)" in said.split(line)[1].splitlines()[0]
        )


def test_one_worker_did_all_of_it_and_what_was_trained_is_what_was_sampled(
    ended: tuple[Path, str],
) -> None:
    figures = summary(ended[0])
    assert figures["steps"] == STEPS
    assert list(figures["idle_share"]) == ["w0"]
    assert figures["role_switches"] >= STEPS
    assert (figures["checks"]["mismatches"], figures["checks"]["trained_twice"]) == (0, 0)


def test_it_says_where_the_pictures_are_and_what_they_show(ended: tuple[Path, str]) -> None:
    out, said = ended
    for picture in ("reward.png", "timeline.png"):
        assert (out / picture).exists()
        assert str(out / picture) in said
    assert "A step took " in said and "is the shortest possible" in said


def test_an_earlier_run_is_kept(ended: tuple[Path, str]) -> None:
    out, said = ended
    assert (out.with_name("out-1") / "earlier").exists()
    assert f"the earlier run is kept in {out}-1" in said
