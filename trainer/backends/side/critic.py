"""The critic: a model of its own with one output, the value of the place before a token.

It learns returns that the trainer computed from its values (`Column.TARGET`). Called by the back
ends. `_N` counts the trained tokens of a micro-batch.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seamlessflow.trainer.backends.backend import UpdateFailed
from seamlessflow.trainer.backends.forward import model_inputs
from seamlessflow.trainer.backends.losses.values import value_loss
from seamlessflow.trainer.backends.model import load_critic
from seamlessflow.trainer.backends.optimizer_state import CRITIC, Keeping, adamw, move_state
from seamlessflow.trainer.backends.sharded.parts import Files
from seamlessflow.trainer.backends.side.frozen import Placed
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection

Autocast = Callable[[], AbstractContextManager[object]]


class Critic:
    """A model of values with its optimizer."""

    def __init__(
        self, directory: Path, settings: TrainerSection, placed: Placed, keeping: Keeping
    ) -> None:
        """Load the model of `directory`, with an output of zeros. Raise `ModelUnusable`."""
        self._settings, self._keeping = settings, keeping
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

    def state(self) -> Files:
        """Return a copy of this rank's part of weights and optimizer, on the host."""
        return self._keeping.copied(self._model, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        self._keeping.load(directory, self._model, self._optimizer, CRITIC)

    def move(self, device: torch.device) -> None:
        """Move weights and optimizer."""
        nn.Module.to(self._model, device)
        move_state(self._optimizer, device)

    def _values(self, batch: MicroBatch) -> Tensor:
        logits_BT1: Tensor = self._model(**model_inputs(self._model, batch)).logits
        device = logits_BT1.device
        rows_N = torch.from_numpy(batch.rows_N).to(device)
        columns_N = torch.from_numpy(batch.columns_N).to(device)
        return logits_BT1[rows_N, columns_N, 0].float()
