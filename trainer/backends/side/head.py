"""The critic as a head: a linear output on the policy's last hidden states, in the policy's pass.

It has H + 1 numbers, so each rank has all of them, in float32 whatever the policy is computed in.
No part of the policy's model, hence of no published weights. Called by the back ends. Dimensions: N
trained tokens, H hidden.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from seamlessflow.trainer.backends.losses.values import value_loss
from seamlessflow.trainer.backends.optimizer_state import (
    CRITIC,
    adamw,
    copied,
    load_state,
    move_state,
)
from seamlessflow.trainer.backends.sharded.parts import Files
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection

Summed = Callable[[Tensor], Tensor]
"""Returns the sum over all ranks of a tensor on the host; every rank must call it."""


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

    def state(self) -> Files:
        """Return a copy of weights and optimizer on the host."""
        return copied(self._output, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        load_state(directory, self._output, self._optimizer, CRITIC)

    def move(self, device: torch.device) -> None:
        """Move weights and optimizer."""
        nn.Module.to(self._output, device)
        move_state(self._optimizer, device)


def _passing(hidden_NH: Tensor, share: float) -> Tensor:
    """Return the hidden states, through which so much of a gradient passes."""
    fixed_NH = hidden_NH.detach()
    return fixed_NH + share * (hidden_NH - fixed_NH) if share else fixed_NH
