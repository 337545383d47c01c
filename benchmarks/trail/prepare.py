"""Model and tasks of Trail: `python -m benchmarks.trail.prepare DIR --seed S`.

Writes `DIR/model`, the demo's model after its warm-up on a noisy demonstrator of this game, and
`DIR/tasks/{train,eval}.jsonl`: what a run configuration of `seamlessflow train` needs beside the
agent `benchmarks.trail.agent:run`. The same seed gives the same files on one machine.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.trail.demonstrator import TrailDemonstrator
from benchmarks.trail.game import make_tasks, write_tasks
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.model import imitate, make_model
from seamlessflow.infra.rendering.renderer import Renderer

TRAIN_TASKS, EVAL_TASKS = 2_000, 200
WARM_UP_STEPS, WARM_UP_EPISODES = 300, 24
"""Fewer episodes than the demo's, since each has several calls."""


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    prepare(asked.directory, asked.seed)


def prepare(directory: Path, seed: int, warm_up_steps: int = WARM_UP_STEPS) -> None:
    """Write model and tasks to `directory`."""
    model, tasks = directory / "model", directory / "tasks"
    for folder in (model, tasks):
        folder.mkdir(parents=True, exist_ok=True)
    write_tasks(make_tasks(TRAIN_TASKS, seed, "train"), tasks / "train.jsonl")
    write_tasks(make_tasks(EVAL_TASKS, seed, "eval"), tasks / "eval.jsonl")
    make_model(model, seed)
    demonstrator = TrailDemonstrator(Renderer.load(model, RENDERER), seed)
    imitate(model, demonstrator.batch, _silent, warm_up_steps, WARM_UP_EPISODES)


def _silent(step: int, steps: int, loss: float) -> None:
    """Print nothing: the warm-up takes seconds."""


if __name__ == "__main__":
    main()
