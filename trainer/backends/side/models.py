"""The models beside the policy that a step needs: reference, teacher, critic.

Each rank has all of them, as it has the policy: whole, or its shards. Called by the back ends.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from trainer.backends.backend import ModelUnusable
from trainer.backends.forward import Forward, check_layout
from trainer.backends.optimizer_state import Files
from trainer.backends.side.critic import Critic
from trainer.backends.side.frozen import FrozenModel, Placed
from trainer.data.credit.columns import Annotated, Column
from trainer.data.packing import MicroBatch
from trainer.settings import TrainerSection

Autocast = Callable[[], AbstractContextManager[object]]
_OF_POLICY = {Column.PROXIMAL: 0, Column.ENTROPY: 1}
"""Columns of the policy itself, by their place in the results of its pass."""


class SideModels:
    """The models that the settings ask for."""

    def __init__(self, policy: Path, settings: TrainerSection, placed: Placed) -> None:
        """Load them on the host. Raise `ModelUnusable`."""

        def checked(model: PreTrainedModel) -> PreTrainedModel:
            check_layout(model, settings.layout)
            return placed(model)

        self._frozen: dict[Column, FrozenModel] = {}
        if settings.reference_used:
            directory = settings.reference or policy
            _check_tokens(policy, directory)
            self._frozen[Column.REFERENCE] = FrozenModel(directory, settings.compute, checked)
        if settings.advantage == "distill" and settings.teacher is not None:
            _check_tokens(policy, settings.teacher)
            teacher = FrozenModel(settings.teacher, settings.compute, checked)
            self._frozen[Column.TEACHER] = teacher
        self.critic = None
        if settings.critic_used:
            directory = settings.critic.model or policy
            _check_tokens(policy, directory)
            self.critic = Critic(directory, settings, checked)

    def annotate(
        self,
        batches: Sequence[MicroBatch],
        columns: Sequence[Column],
        device: torch.device,
        autocast: Autocast,
        policy: Forward,
    ) -> Annotated:
        """Return the columns of each micro-batch; those of the policy itself by its own pass."""
        found: dict[Column, list[NDArray[np.float32]]] = {}
        for name in columns:
            if name is Column.VALUE and self.critic is not None:
                found[name] = self.critic.values(batches, autocast)
            elif name in _OF_POLICY:
                found[name] = _of_policy(policy, batches, autocast, _OF_POLICY[name])
            else:
                found[name] = self._frozen[name].logprobs(batches, device, autocast)
        return found

    def move(self, device: torch.device) -> None:
        """Move what is trained."""
        if self.critic is not None:
            self.critic.move(device)

    def state(self) -> Files:
        """Return a copy of what moves with the weights, on the host. Every rank must call it."""
        return {} if self.critic is None else self.critic.state()

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        if self.critic is not None:
            self.critic.load(directory)


@torch.no_grad()
def _of_policy(
    policy: Forward, batches: Sequence[MicroBatch], autocast: Autocast, result: int
) -> list[NDArray[np.float32]]:
    """Return a result of the policy's pass at the trained tokens (N) of each micro-batch."""
    with autocast():
        return [policy(batch)[result].cpu().numpy() for batch in batches]


def _check_tokens(policy: Path, directory: Path) -> None:
    """Raise `ModelUnusable` if ids mean other tokens to a model than to the policy."""
    files = [of / "tokenizer.json" for of in (policy, directory)]
    own, other = (path.read_bytes() if path.is_file() else b"" for path in files)
    if own != other:
        raise ModelUnusable(str(directory), "its tokenizer.json is not that of the policy")
