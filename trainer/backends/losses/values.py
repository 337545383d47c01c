"""The value loss, by which critics of both kinds learn.

Each critic output (`trainer/data/credit/values.py`) learns at some of its places, which may be
before or behind trained tokens. `_N` counts a micro-batch's trained tokens.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.credit.values import CriticOutput, Lesson, ValueLoss
from seamlessflow.trainer.data.packing import MicroBatch

ValuesByColumn = Mapping[Column, Tensor]
"""A micro-batch's values (N), by column."""


def value_loss(
    values: ValuesByColumn, batch: MicroBatch, outputs: Sequence[CriticOutput], clip: float
) -> Tensor:
    """Return this micro-batch's part in each output's mean loss, summed over the outputs.

    Means are over the places where an output learns. `clip`: see `clipped_errors`.
    """
    parts = [
        _part(output.loss, lesson, values[lesson.value], batch, clip)
        for output in outputs
        for lesson in output.lessons
    ]
    return torch.stack(parts).sum()


def clipped_errors(values_N: Tensor, targets_N: Tensor, before_N: Tensor, clip: float) -> Tensor:
    """Return half the larger of two squared errors (arXiv 2005.12729).

    One is the value's error. The other is the error that the value would have if it were kept
    within `clip` of the value before the step.
    """
    near_N = before_N + (values_N - before_N).clamp(-clip, clip)
    return 0.5 * torch.maximum((values_N - targets_N).square(), (near_N - targets_N).square())


def _part(
    loss: ValueLoss, lesson: Lesson, values_N: Tensor, batch: MicroBatch, clip: float
) -> Tensor:
    """Return a lesson's losses, summed with its places' weights."""

    def column(name: Column) -> Tensor:
        # A rank with less to do has a micro-batch without tokens, and so without columns.
        none = np.zeros(len(batch), np.float32)
        return torch.from_numpy(batch.columns.get(name, none)).to(values_N.device)

    targets_N = column(lesson.target)
    match loss:
        case "clipped":
            losses_N = clipped_errors(values_N, targets_N, column(lesson.value), clip)
        case "cross_entropy":
            losses_N = functional.binary_cross_entropy_with_logits(
                values_N, targets_N, reduction="none"
            )
        case "huber":
            losses_N = functional.huber_loss(values_N, targets_N, reduction="none")
    return (losses_N * column(lesson.weight)).sum()
