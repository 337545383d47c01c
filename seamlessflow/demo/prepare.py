"""Preparation for the demo: `python -m seamlessflow.demo.prepare DIR --seed S`.

Writes `DIR/model` (a Hugging Face directory after its warm-up), `DIR/tasks/{train,eval}.jsonl` and
`DIR/warmup.json` (the warm-up's seconds). `directory.py` has it run.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from seamlessflow.demo.model import HEAD_DIM, make_model, warm_up
from seamlessflow.demo.task import make_tasks, write_tasks

TRAIN_TASKS = 2_000
EVAL_TASKS = 100
THREADS = 1
"""More threads are slower with so small a model."""
_PRINT_EVERY = 25


def main() -> None:
    """Read the command line and prepare the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--head-dim", type=int, default=HEAD_DIM)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    prepare(arguments.directory, arguments.seed, arguments.head_dim)


def prepare(directory: Path, seed: int, head_dim: int = HEAD_DIM) -> None:
    """Write model and tasks to `directory`; the same seed gives the same files."""
    model = directory / "model"
    tasks = directory / "tasks"
    for folder in (model, tasks):
        folder.mkdir(parents=True, exist_ok=True)
    write_tasks(make_tasks(TRAIN_TASKS, seed, "train"), tasks / "train.jsonl")
    write_tasks(make_tasks(EVAL_TASKS, seed, "eval"), tasks / "eval.jsonl")
    began = time.monotonic()
    make_model(model, seed, head_dim)
    warm_up(model, seed, _print_loss)
    took = {"warmup_s": round(time.monotonic() - began, 2)}
    (directory / "warmup.json").write_text(json.dumps(took), encoding="utf-8")


def _print_loss(step: int, steps: int, loss: float) -> None:
    if step % _PRINT_EVERY == 0:
        print(f"warm-up step {step} of {steps}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
