"""Noisy player of `game.py`, whom the model imitates before it learns from rewards.

As in `seamlessflow/demo/model.py`: always the right form, but the right key on purpose only now
and then, else a random one.
"""

import random
from functools import cache
from typing import Any

import torch

from benchmarks.trail.game import DIGITS, LEVELS, TrailTask, following, make_tasks, question, told
from seamlessflow.demo.model import Parts, flat
from seamlessflow.demo.task import LOOKUP, call_text
from seamlessflow.infra.rendering.renderer import Renderer

RIGHT_ON_PURPOSE = 0.4
_TASKS = 2_000


class TrailDemonstrator:
    """Player of tasks of its own, wrong in most turns."""

    def __init__(self, renderer: Renderer, seed: int) -> None:
        self._draw = random.Random(f"trail demonstrator {seed}")  # nosec B311 # repeatable
        self._tasks = make_tasks(_TASKS, seed, "train")
        self._renderer = renderer
        self._prompt = cache(self._render_prompt)
        self._call = cache(self._encode_call)
        self._result = cache(self._render_result)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and targets, both [B, T], of `size` episodes of one level: equally long."""
        level = self._draw.randrange(len(LEVELS))
        tasks = self._tasks[level :: len(LEVELS)]
        episodes = [self.episode(self._draw.choice(tasks)) for _ in range(size)]
        ids, targets = zip(*(flat(parts) for parts in episodes), strict=True)
        return torch.tensor(ids), torch.tensor(targets)

    def episode(self, task: TrailTask) -> Parts:
        """Return prompt and calls with the tool's answers between them."""
        asked = self._digit(task["key"])
        parts: Parts = [(self._prompt(task["key"]), False), (self._call(asked), True)]
        for _ in range(task["turns"] - 1):
            parts.append((self._result(asked, told(task, asked)), False))
            asked = self._digit(following(task, asked))
            parts.append((self._call(asked), True))
        return parts

    def _digit(self, right: int) -> int:
        wanted = self._draw.random() < RIGHT_ON_PURPOSE
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
