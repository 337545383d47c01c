"""A step of the trainer, and the same step by a plain implementation, on made-up sessions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.credit import Chaining
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated
from seamlessflow.trainer.steps.inputs import batch_rules, step_input
from tests.builders.trainer.models import logprobs, open_tiny
from tests.builders.trainer.plain_grpo import plain_grpo
from tests.builders.trainer.trajectories import Run, trajectory

Sessions = Sequence[Sequence[Trajectory]]
_REWARDS = ((1.0, 0.0, 0.25), (0.0, 1.0), (1.0, 1.0), (0.5,))
"""Rewards of each group; the last two have no spread, so they only count in the mean."""
_ORIGINS = ("prompt", "policy", "tool", "policy")


def assert_equal_to_plain(directory: Path, layout: Layout, tolerance: float) -> None:
    """Check that a step's loss and gradient are those of the plain implementation.

    `tolerance`: largest difference of the loss, and of a parameter's gradient in its norm, each as
    a share of that.
    """
    model = open_tiny(directory)
    sessions = made_sessions(model)
    loss, gradients = plain_grpo(model, sessions)
    trained_loss, computed = trained(directory, sessions, layout)
    assert abs(trained_loss - loss) <= tolerance * abs(loss)
    for name, gradient in gradients.items():
        difference = torch.linalg.vector_norm(computed[name] - gradient)
        assert difference <= tolerance * torch.linalg.vector_norm(gradient), name


def made_sessions(model: PreTrainedModel) -> Sessions:
    """Return sessions of two turns, whose log-probs are near those of the model.

    They differ enough for clipping on both sides. Those of a group have one prompt.
    """
    random = np.random.default_rng(0)
    size = int(model.config.vocab_size)

    def ids(count: int) -> list[int]:
        return [int(token) for token in random.integers(0, size, count)]

    groups = []
    for number, rewards in enumerate(_REWARDS):
        prompt = ids(12)
        parts = [[prompt, ids(6), ids(4), ids(7)] for _ in rewards]
        groups.append(
            [
                _session(model, random, f"g-{number}.{place}.0", reward, texts)
                for place, (reward, texts) in enumerate(zip(rewards, parts, strict=True))
            ]
        )
    return groups


def trained(
    directory: Path, sessions: Sessions, layout: Layout, **more: Any
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and the gradient of the trainer's step; `more`: settings of the trainer."""
    settings = TrainerSettings(trainer={"device": "cpu", "layout": layout, **more})
    rules = batch_rules(settings)
    groups = [
        Group(
            group[0].group_id, tuple(_read(session, settings.trainer.chains) for session in group)
        )
        for group in sessions
    ]
    prepared = tuple(prepare(group, StepClock({}, now=0), rules) for group in groups)
    backend = TorchBackend(directory, settings.trainer)
    batch = annotated(settings.trainer, Batch(0, prepared), backend)
    step = step_input(settings, batch, 0, 0, ())
    *_, last = backend.gradients(step)
    gradients = {name: value.clone() for name, value in last.items()}
    return backend.train(step)["loss"], gradients


def _session(
    model: PreTrainedModel,
    random: np.random.Generator,
    name: str,
    reward: float,
    texts: Sequence[list[int]],
) -> Trajectory:
    said = logprobs(model, [token for text in texts for token in text])
    noisy = [value + float(random.normal(0, 0.3)) for value in said]
    runs: list[Run] = []
    for number, (text, origin) in enumerate(zip(texts, _ORIGINS, strict=True)):
        behind = len(texts[number - 1]) if number else 0
        values, noisy = noisy[: len(text)], noisy[len(text) :]
        sampled = values if origin == "policy" else ()
        runs.append(Run(text, origin, f"t{number // 2}", number - 1, behind, logprobs=sampled))
    return trajectory(runs, name, reward, group=name.split(".")[0])


def _read(session: Trajectory, chaining: Chaining) -> ValidSession:
    result = read(session, "tiny", 0, 0, chaining=chaining)
    assert isinstance(result, ValidSession)
    return result
