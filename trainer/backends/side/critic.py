"""The critic: a model of its own with one output, the value of the place before a token.

It learns returns that the trainer computed from its values (`Column.TARGET`). Called by the back
ends. `_N` counts the trained tokens of a micro-batch.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer.backends.forward import model_inputs
from trainer.backends.model import load_critic
from trainer.backends.optimizer_state import (
    CRITIC,
    Files,
    full,
    gathered,
    load_state,
    move_state,
)
from trainer.backends.side.frozen import Placed
from trainer.data.credit.columns import Column
from trainer.data.packing import MicroBatch
from trainer.settings import TrainerSection

_log = logging.getLogger(__name__)
Autocast = Callable[[], AbstractContextManager[object]]


class Critic:
    """A model of values with its optimizer."""

    def __init__(self, directory: Path, settings: TrainerSection, placed: Placed) -> None:
        """Load the model of `directory`, with an output of zeros. Raise `ModelUnusable`."""
        self._settings = settings
        self._model = placed(load_critic(directory, settings.master_dtype))
        optimizer = settings.optimizer
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=settings.critic.lr,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
        )

    @torch.no_grad()
    def values(
        self, batches: Sequence[MicroBatch], autocast: Autocast
    ) -> list[NDArray[np.float32]]:
        """Return the values (N) of each micro-batch."""
        with autocast():
            return [self._values(batch).cpu().numpy() for batch in batches]

    def train(self, batches: Sequence[MicroBatch], ranks: int, autocast: Autocast) -> float:
        """Train on this rank's micro-batches; return its part of the mean loss.

        The loss of a place is half the larger of two squared errors: that of the value, and that
        of the value kept within `clip` of the one before the step (arXiv 2005.12729).
        """
        total = 0.0
        for batch in batches:
            with autocast():
                loss = self._loss(self._values(batch), batch)
            # FSDP2 averages gradients over the ranks.
            torch.autograd.backward(loss * ranks)
            total += float(loss.detach())
        norm = float(
            full(
                torch.nn.utils.clip_grad_norm_(
                    self._model.parameters(), self._settings.optimizer.clip_norm
                )
            )
        )
        if math.isfinite(norm):
            self._optimizer.step()
        else:
            _log.error("the critic's gradient is not finite (%s): it stays as it is", norm)
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def state(self) -> Files:
        """Return a copy of weights and optimizer on the host. Every rank must call it."""
        return gathered(self._model, self._optimizer, CRITIC)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        load_state(directory, self._model, self._optimizer, CRITIC)

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

    def _loss(self, values_N: Tensor, batch: MicroBatch) -> Tensor:
        def column(name: Column) -> Tensor:
            none = np.zeros(len(batch), np.float32)
            return torch.from_numpy(batch.columns.get(name, none)).to(values_N.device)

        targets_N, before_N = column(Column.TARGET), column(Column.VALUE)
        reach = self._settings.critic.clip
        near_N = before_N + (values_N - before_N).clamp(-reach, reach)
        errors_N = torch.maximum((values_N - targets_N).square(), (near_N - targets_N).square())
        return 0.5 * (errors_N * column(Column.TARGET_WEIGHT)).sum()
