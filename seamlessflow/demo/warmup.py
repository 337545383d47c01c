"""A short supervised warm-up on a noisy demonstrator: reinforcement needs something to reinforce.

The demonstrator always keeps to the form (a tool call, then an answer) but gives a digit on purpose
only one time in five, else any digit. So the policy starts at a reward of about 0.1, and what it
learns later it was not shown.

Tensor letters: B episodes, T tokens, D width of the model.
"""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen3ForCausalLM

from infra.rendering.renderer import Renderer
from schemas.tokens import unpack
from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.dialogues import answer_text, call_text, tool_message
from seamlessflow.demo.task import DIGITS, LOOKUP, LookupTask, make_tasks, question

STEPS = 150
EPISODES_PER_STEP = 96
"""A third of it leaves some seeds with a policy that hardly copies, and a long plateau."""
LEARNING_RATE = 3e-3
MAX_GRADIENT_NORM = 1.0
RIGHT_ON_PURPOSE = 0.2
"""Higher values start nearer to the solution: at 0.4 the first rewards are about 0.3."""

NOT_TRAINED = -100
"""`cross_entropy`'s mark of a target that does not count."""

Progress = Callable[[int, int, float], None]
"""Called after each step with its number, the number of all steps and the loss."""

Turns = list[tuple[bytes, bool]]
"""Runs of token ids, each with whether the model is to learn it."""


def warm_up(directory: Path, seed: int, progress: Progress, steps: int = STEPS) -> None:
    """Trains the model in `directory` in place; the same weights for the same seed on the same
    machine."""
    model = Qwen3ForCausalLM.from_pretrained(directory)
    demonstrator = Demonstrator(Renderer.load(directory, RENDERER), seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in range(1, steps + 1):
        ids_BT, targets_BT = demonstrator.batch(EPISODES_PER_STEP)
        loss = _loss(model, ids_BT, targets_BT[:, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        progress(step, steps, loss.item())
    model.save_pretrained(directory)


def _loss(model: Qwen3ForCausalLM, ids_BT: torch.Tensor, next_BT: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that are learnt; logits are made for these alone."""
    learnt_BT = next_BT != NOT_TRAINED
    hidden_BTD = model.model(input_ids=ids_BT).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden_BTD[learnt_BT]), next_BT[learnt_BT])


class Demonstrator:
    """Plays episodes of training tasks, mostly wrong."""

    def __init__(self, renderer: Renderer, seed: int) -> None:
        self._draw = random.Random(f"demonstrator {seed}")
        self._tasks = make_tasks(STEPS * EPISODES_PER_STEP, seed, "train")
        self._renderer = renderer
        self._prompt = cache(self._render_prompt)
        self._answer = cache(self._encode_answer)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and targets, both [B, T]; a target is the id itself or `NOT_TRAINED`."""
        episodes = [self.episode(self._draw.choice(self._tasks)) for _ in range(size)]
        ids, targets = zip(*(_flat(turns) for turns in episodes), strict=True)
        return torch.tensor(ids), torch.tensor(targets)

    def episode(self, task: LookupTask) -> Turns:
        """Prompt, call, tool's answer, answer: of equal lengths in every episode, for a digit is
        always one token."""
        key = self._digit(task["key"])
        prompt, call = self._prompt(task["key"]), self._answer(call_text(key))
        told = self._renderer.bridge(prompt, call, [tool_message(task, key)], [LOOKUP])
        answer = self._answer(answer_text(self._digit(task["table"][key])))
        return [(prompt, False), (call, True), (told or b"", False), (answer, True)]

    def _digit(self, right: int) -> int:
        return right if self._draw.random() < RIGHT_ON_PURPOSE else self._draw.choice(DIGITS)

    def _render_prompt(self, key: int) -> bytes:
        task = LookupTask(id="", split="train", key=key, table=[])
        return self._renderer.render([question(task)], [LOOKUP])

    def _encode_answer(self, text: str) -> bytes:
        return self._renderer.encode(f"{text}<|im_end|>")


def _flat(turns: Turns) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    targets: list[int] = []
    for run, learnt in turns:
        tokens = unpack(run)
        ids += tokens
        targets += tokens if learnt else [NOT_TRAINED] * len(tokens)
    return ids, targets
