"""Trail's model and tasks: `python -m benchmarks.trail.prepare DIR --seed S`.

Writes `DIR/model`, the demo's model after its warm-up on a noisy demonstrator for this game, and
`DIR/tasks/{train,eval}.jsonl`: what a run configuration for `seamlessflow train` needs beside the
agent `benchmarks.trail.agent:run`. The same seed gives the same files on one machine.

The demonstrator is like the one in `seamlessflow/demo/model.py`, for this game. It always answers
in the right form, but calls the right key on purpose only now and then, else a random one.
"""

import argparse
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.trail.game import (
    DIGITS,
    LEVELS,
    TrailTask,
    following,
    make_tasks,
    question,
    tool_answer,
    write_tasks,
)
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.model import TextParts, flat, imitate, make_model
from seamlessflow.demo.task import LOOKUP, call_text
from seamlessflow.infra.rendering.renderer import Renderer

TRAIN_TASKS, EVAL_TASKS = 2_000, 200
WARM_UP_STEPS, WARM_UP_EPISODES = 300, 24
"""Fewer episodes than the demo's, since each has several calls."""
_RIGHT_ON_PURPOSE = 0.4


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


class TrailDemonstrator:
    """Noisy player, wrong in most turns, that the model imitates before it learns."""

    def __init__(self, renderer: Renderer, seed: int) -> None:
        self._draw = random.Random(f"trail demonstrator {seed}")  # nosec B311 # repeatable
        self._tasks = make_tasks(TRAIN_TASKS, seed, "train")
        self._renderer = renderer
        self._prompt = cache(self._render_prompt)
        self._call = cache(self._encode_call)
        self._result = cache(self._render_result)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and targets, both [B, T], for `size` episodes on one level: equally long."""
        level = self._draw.randrange(len(LEVELS))
        tasks = self._tasks[level :: len(LEVELS)]
        episodes = [self.episode(self._draw.choice(tasks)) for _ in range(size)]
        ids, targets = zip(*(flat(parts) for parts in episodes), strict=True)
        return torch.tensor(ids), torch.tensor(targets)

    def episode(self, task: TrailTask) -> TextParts:
        """Return prompt and calls with the tool's answers between them."""
        asked = self._digit(task["key"])
        parts: TextParts = [(self._prompt(task["key"]), False), (self._call(asked), True)]
        for _ in range(task["turns"] - 1):
            parts.append((self._result(asked, tool_answer(task, asked)), False))
            asked = self._digit(following(task, asked))
            parts.append((self._call(asked), True))
        return parts

    def _digit(self, right: int) -> int:
        wanted = self._draw.random() < _RIGHT_ON_PURPOSE
        return right if wanted else self._draw.randrange(DIGITS)

    def _render_prompt(self, key: int) -> bytes:
        task: Any = {"key": key}
        return self._renderer.render([question(task)], [LOOKUP])

    def _encode_call(self, key: int) -> bytes:
        return self._renderer.encode(f"{call_text(key)}<|im_end|>")

    def _render_result(self, key: int, words: str) -> bytes:
        message = {"role": "tool", "tool_call_id": "call_0", "content": words}
        prompt = self._prompt(key)
        return self._renderer.bridge(prompt, self._call(key), [message], [LOOKUP]) or b""


def _silent(step: int, steps: int, loss: float) -> None:
    """Print nothing: the warm-up takes seconds."""


if __name__ == "__main__":
    main()
