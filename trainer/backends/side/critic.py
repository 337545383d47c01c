"""The critic, of either kind: it learns values for the places before and behind tokens.

It is a separate model with an output for each value, or a head. A head is a linear layer on the
policy's last hidden states, in the policy's pass. It has only H + 1 numbers for each output, so
each rank has all of them, always in float32. It belongs neither to the policy's model nor to
published weights. The critic learns targets that the trainer computed from the values
(`trainer/data/credit/values.py`). Called by the back ends. Dimensions: N trained tokens in a
micro-batch, H hidden, O outputs.
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
from seamlessflow.trainer.backends.forward import HiddenStates, model_inputs
from seamlessflow.trainer.backends.losses.values import ValuesByColumn, value_loss
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
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.credit.values import (
    OUTPUTS,
    CriticOutput,
    needs_behind,
    value_columns,
)
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection

Autocast = Callable[[], AbstractContextManager[object]]
Summed = Callable[[Tensor], Tensor]
"""Returns a host tensor's sum over all ranks; every rank must call it."""


class Critic:
    """A value model with its optimizer."""

    def __init__(
        self, directory: Path, settings: TrainerSection, placed: Placed, keeping: Keeping
    ) -> None:
        """Load the model in `directory`, with outputs that are 0. Raise `ModelUnusable`."""
        self._settings = settings
        self._keeping = keeping
        self._outputs = OUTPUTS[settings.advantage]
        empty = settings.by_parts
        count = len(self._outputs)
        self._model = placed(load_critic(directory, settings.master_dtype, empty, count))
        parameters = self._model.parameters()
        self._optimizer = adamw(parameters, settings.optimizer, settings.critic.lr)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that it computes."""
        return value_columns(self._outputs)

    @torch.no_grad()
    def values(
        self, batches: Sequence[MicroBatch], autocast: Autocast
    ) -> dict[Column, list[NDArray[np.float32]]]:
        """Return each micro-batch's values (N), by column."""
        with autocast():
            of_batches = [self._values(batch) for batch in batches]
        return {
            name: [values[name].cpu().numpy() for values in of_batches] for name in self.columns
        }

    def train(self, batches: Sequence[MicroBatch], ranks: int, autocast: Autocast) -> float:
        """Train on this rank's micro-batches; return its part in the mean loss (`value_loss`).

        Raise `UpdateFailed`, on all ranks.
        """
        total = 0.0
        for batch in batches:
            with autocast():
                clip = self._settings.critic.clip
                loss = value_loss(self._values(batch), batch, self._outputs, clip)
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
        """Return a host copy of this rank's part of weights and optimizer."""
        return self._keeping.copied(self._model, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        self._keeping.load(directory, self._model, self._optimizer, CRITIC)

    def move(self, move: Callable[[nn.Module, Optimizer], None]) -> None:
        """Move weights and optimizer."""
        move(self._model, self._optimizer)

    def _values(self, batch: MicroBatch) -> ValuesByColumn:
        logits_BTO: Tensor = self._model(**model_inputs(self._model, batch)).logits
        device = logits_BTO.device
        rows_N = torch.from_numpy(batch.rows_N).to(device)

        def at(columns_N: NDArray[np.int64]) -> Tensor:
            return logits_BTO[rows_N, torch.from_numpy(columns_N).to(device)].float()

        behind_NO = at(batch.behind_N) if needs_behind(self._outputs) else None
        return _by_column(self._outputs, at(batch.columns_N), behind_NO)


class ValueHead:
    """A linear layer with its optimizer; 0 for all hidden states at first."""

    def __init__(self, width: int, settings: TrainerSection) -> None:
        """`width`: H, the width of the policy's hidden states."""
        self._settings = settings
        self._outputs = OUTPUTS[settings.advantage]
        self._output = nn.Linear(width, len(self._outputs), dtype=torch.float32)
        self._parameters = list(self._output.parameters())
        for parameter in self._parameters:
            nn.init.zeros_(parameter)
        self._optimizer = adamw(self._parameters, settings.optimizer, settings.critic.lr)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that it computes."""
        return value_columns(self._outputs)

    @property
    def behind(self) -> bool:
        """Return whether it needs the hidden states behind tokens."""
        return needs_behind(self._outputs)

    def values(self, hidden: HiddenStates) -> ValuesByColumn:
        """Return values (N) by column, for hidden states; float32, with gradient."""
        before_NO, behind_NO = hidden.each(self._at)
        return _by_column(self._outputs, before_NO, behind_NO)

    def loss(self, hidden: HiddenStates, batch: MicroBatch) -> Tensor:
        """Return a micro-batch's part in the mean loss (`value_loss`).

        Its gradient reaches the head as it is, and the hidden states times `critic.coefficient`.
        """
        critic = self._settings.critic
        passing = hidden.each(lambda states_NH: _passing(states_NH.float(), critic.coefficient))
        return value_loss(self.values(passing), batch, self._outputs, critic.clip)

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
        """Return a host copy of weights and optimizer."""
        return copied(self._output, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        load_state(directory, self._output, self._optimizer, CRITIC)

    def move(self, move: Callable[[nn.Module, Optimizer], None]) -> None:
        """Move weights and optimizer."""
        move(self._output, self._optimizer)

    def _at(self, hidden_NH: Tensor) -> Tensor:
        """Return all outputs (N, O) for hidden states."""
        with torch.autocast(hidden_NH.device.type, enabled=False):
            values_NO: Tensor = self._output(hidden_NH.float())
        return values_NO


def _by_column(
    outputs: Sequence[CriticOutput], before_NO: Tensor, behind_NO: Tensor | None
) -> ValuesByColumn:
    """Return values (N) by column, from all outputs before and behind tokens."""
    values: dict[Column, Tensor] = {}
    for place, output in enumerate(outputs):
        values[output.before.value] = before_NO[:, place].contiguous()
        if output.behind is not None and behind_NO is not None:
            values[output.behind.value] = behind_NO[:, place].contiguous()
    return values


def _passing(hidden_NH: Tensor, share: float) -> Tensor:
    """Return the hidden states; they let only `share` of a gradient through."""
    fixed_NH = hidden_NH.detach()
    return fixed_NH + share * (hidden_NH - fixed_NH) if share else fixed_NH
