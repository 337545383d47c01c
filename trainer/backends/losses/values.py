"""The loss of values, by which a critic of either kind learns. `_N` counts trained tokens."""

import numpy as np
import torch
from torch import Tensor

from seamlessflow.trainer.data.credit.columns import Column
from seamlessflow.trainer.data.packing import MicroBatch


def value_loss(values_N: Tensor, batch: MicroBatch, clip: float) -> Tensor:
    """Return this micro-batch's part of the mean loss of the places where a critic learns.

    The loss of a place is half the larger of two squared errors: that of the value, and that of the
    value kept within `clip` of the one before the step (arXiv 2005.12729).
    """

    def column(name: Column) -> Tensor:
        none = np.zeros(len(batch), np.float32)
        return torch.from_numpy(batch.columns.get(name, none)).to(values_N.device)

    targets_N, before_N = column(Column.TARGET), column(Column.VALUE)
    near_N = before_N + (values_N - before_N).clamp(-clip, clip)
    errors_N = torch.maximum((values_N - targets_N).square(), (near_N - targets_N).square())
    return 0.5 * (errors_N * column(Column.TARGET_WEIGHT)).sum()
