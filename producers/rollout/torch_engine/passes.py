"""The two passes of a step over the slots table: one that fills in KV, one that decodes.

They know rows and tokens, nothing of requests. Engine thread only, under `torch.inference_mode`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from producers.rollout.torch_engine.forward import PADDING, Forward
from producers.rollout.torch_engine.rows import RowTable

Rows = npt.NDArray[np.int64]


def decoding_first(slots: RowTable) -> int:
    """Move the running rows that need one token's forward before the others; returns how many."""
    pending = slots.pending()
    if (pending == 1).all():
        return len(pending)
    decoding = 0
    for row, tokens in enumerate(pending.tolist()):
        if tokens == 1:
            slots.swap(row, decoding)
            decoding += 1
    return decoding


def decode(slots: RowTable, forward: Forward, count: int) -> tuple[Rows, Tensor]:
    """Logits [count, vocabulary] after the last token of the first `count` rows."""
    rows = np.arange(count)
    positions = slots.cached[:count].copy()
    ids = slots.tokens[rows, positions].astype(np.int64)
    logits_BV = forward(0, ids[:, None], positions[:, None])
    slots.cached[:count] += 1
    return rows, logits_BV


def prefill(slots: RowTable, forward: Forward, first: int, budget: int) -> tuple[Rows, Tensor]:
    """Give rows from `first` on a chunk of KV, as many as fit; the oldest is always one of them.

    Returns the rows that now have all but their next token, and the logits after their last one.
    """
    slots.swap(first, first + int(slots.ticket[first : slots.running].argmin()))
    pending = slots.pending()[first:]
    count, width = plan_prefill(pending.tolist(), budget)
    rows = np.arange(first, first + count)
    sizes = np.minimum(pending[:count], width)
    columns = np.arange(width) - (width - sizes[:, None])
    positions = np.where(columns < 0, PADDING, slots.cached[rows, None] + columns)
    ids = slots.tokens[rows[:, None], positions.clip(min=0)].astype(np.int64)
    logits_RV = forward(first, ids, positions)
    slots.cached[rows] += sizes
    complete = np.flatnonzero(sizes == pending[:count])
    return rows[complete], logits_RV[torch.from_numpy(complete).to(logits_RV.device)]


def plan_prefill(pending: Sequence[int], budget: int) -> tuple[int, int]:
    """How many rows to take, from the first on, and how wide: the padded area fits the budget.

    A first row wider than the budget is taken alone and in chunks.
    """
    width = min(pending[0], budget)
    for count, tokens in enumerate(pending[1:], start=1):
        wider = max(width, tokens)
        if (count + 1) * wider > budget:
            return count, width
        width = wider
    return len(pending), width
