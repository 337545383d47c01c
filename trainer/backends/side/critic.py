"""The critic of either kind: it learns the value of the place before a token.

It is a model of its own with one output, or a head. A head is a linear output on the policy's last
hidden states, in the policy's pass. It has only H + 1 numbers, so each rank has all of them, always
in float32. It belongs neither to the policy's model nor to published weights. The critic learns
returns that the trainer computed from the values (`Column.TARGET`). Called by the back ends.
Dimensions: N trained tokens of a micro-batch, H hidden.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from seamlessflow.trainer.backends.backend import UpdateFailed
from seamlessflow.trainer.backends.forward import model_inputs
from seamlessflow.trainer.backends.losses.loss import value_loss
from seamlessflow.trainer.backends.model import load_critic
from seamlessflow.trainer.backends.optimizer_state import (
    CRITIC,
    Keeping,
    adamw,
    copied,
    load_state,
)
from seamlessflow.trainer.backends.sharded.parts import FileParts
from seamlessflow.trainer.backends.side.frozen import Placed
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection

Autocast = Callable[[], AbstractContextManager[object]]
Summed = Callable[[Tensor], Tensor]
"""Returns the sum over all ranks of a tensor on the host; every rank must call it."""


class Critic:
    """A model of values with its optimizer."""

    def __init__(
        self, directory: Path, settings: TrainerSection, placed: Placed, keeping: Keeping
    ) -> None:
        """Load the model of `directory`, with an output of zeros. Raise `ModelUnusable`."""
        self._settings = settings
        self._keeping = keeping
        empty = settings.by_parts
        self._model = placed(load_critic(directory, settings.master_dtype, empty))
        parameters = self._model.parameters()
        self._optimizer = adamw(parameters, settings.optimizer, settings.critic.lr)

    @torch.no_grad()
    def values(
        self, batches: Sequence[MicroBatch], autocast: Autocast
    ) -> list[NDArray[np.float32]]:
        """Return the values (N) of each micro-batch."""
        with autocast():
            return [self._values(batch).cpu().numpy() for batch in batches]

    def train(self, batches: Sequence[MicroBatch], ranks: int, autocast: Autocast) -> float:
        """Train on this rank's micro-batches; return its part of the mean loss (`value_loss`).

        Raise `UpdateFailed`, on all ranks.
        """
        total = 0.0
        for batch in batches:
            with autocast():
                loss = value_loss(self._values(batch), batch, self._settings.critic.clip)
            # FSDP2 averages gradients over the ranks.
            torch.autograd.backward(loss * ranks)
            total += float(loss.detach())
        norm = self._keeping.clipped(self._model)
        if not math.isfinite(norm):
            reason = f"the gradient of the critic is not finite ({norm:g})"
            raise UpdateFailed(f"{reason}: lower trainer.critic.lr")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def state(self) -> FileParts:
        """Return a copy of this rank's part of weights and optimizer, on the host."""
        return self._keeping.copied(self._model, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        self._keeping.load(directory, self._model, self._optimizer, CRITIC)

    def move(self, move: Callable[[nn.Module, Optimizer], None]) -> None:
        """Move weights and optimizer."""
        move(self._model, self._optimizer)

    def _values(self, batch: MicroBatch) -> Tensor:
        logits_BT1: Tensor = self._model(**model_inputs(self._model, batch)).logits
        device = logits_BT1.device
        rows_N = torch.from_numpy(batch.rows_N).to(device)
        columns_N = torch.from_numpy(batch.columns_N).to(device)
        return logits_BT1[rows_N, columns_N, 0].float()


class ValueHead:
    """A linear output with its optimizer; 0 for all hidden states at first."""

    def __init__(self, width: int, settings: TrainerSection) -> None:
        """`width`: H, the size of the policy's hidden states."""
        self._settings = settings
        self._output = nn.Linear(width, 1, dtype=torch.float32)
        self._parameters = list(self._output.parameters())
        for parameter in self._parameters:
            nn.init.zeros_(parameter)
        self._optimizer = adamw(self._parameters, settings.optimizer, settings.critic.lr)

    def values(self, hidden_NH: Tensor) -> Tensor:
        """Return the values (N) of hidden states, float32, with gradient."""
        with torch.autocast(hidden_NH.device.type, enabled=False):
            values_N1: Tensor = self._output(hidden_NH.float())
        return values_N1.squeeze(-1)

    def loss(self, hidden_NH: Tensor, batch: MicroBatch) -> Tensor:
        """Return a micro-batch's part of the mean loss (`value_loss`).

        Its gradient reaches the head as it is, and the hidden states times `critic.coefficient`.
        """
        critic = self._settings.critic
        inputs_NH = _passing(hidden_NH.float(), critic.coefficient)
        return value_loss(self.values(inputs_NH), batch, critic.clip)

    def clipped(self, scale: float, summed: Summed) -> float:
        """Sum the gradient over the ranks, undo its scale and clip it; return the norm before."""
        for parameter in self._parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = summed(gradient.cpu()).to(parameter.device) / scale
        limit = self._settings.optimizer.clip_norm
        return float(torch.nn.utils.clip_grad_norm_(self._parameters, limit))

    def update(self) -> None:
        """Apply the gradient."""
        self._optimizer.step()
        self.discard()

    def discard(self) -> None:
        """Forget the gradient."""
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> FileParts:
        """Return a copy of weights and optimizer on the host."""
        return copied(self._output, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        load_state(directory, self._output, self._optimizer, CRITIC)

    def move(self, move: Callable[[nn.Module, Optimizer], None]) -> None:
        """Move weights and optimizer."""
        move(self._output, self._optimizer)


def _passing(hidden_NH: Tensor, share: float) -> Tensor:
    """Return the hidden states, which let `share` of a gradient through."""
    fixed_NH = hidden_NH.detach()
    return fixed_NH + share * (hidden_NH - fixed_NH) if share else fixed_NH
