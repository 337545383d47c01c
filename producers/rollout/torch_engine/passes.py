"""The two kinds of pass over the row table: a prefill fills in KV, a decode adds one token a row.

They see rows and tokens, not requests. Engine thread only, under `torch.inference_mode`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seamlessflow.producers.rollout.torch_engine.forward import PADDING, CachedForward
from seamlessflow.producers.rollout.torch_engine.rows import RowTable

Rows = npt.NDArray[np.int64]


def decoding_first(table: RowTable) -> int:
    """Move the running rows that lack the KV of one token before the others; return how many."""
    pending = table.pending()
    if (pending == 1).all():
        return len(pending)
    decoding = 0
    for row, tokens in enumerate(pending.tolist()):
        if tokens == 1:
            table.swap(row, decoding)
            decoding += 1
    return decoding


def prefill(
    table: RowTable, forward: CachedForward, first: int, budget: int
) -> tuple[Rows, Tensor, float]:
    """Give rows from `first` on a chunk of KV.

    As many rows get one as fit the budget, the oldest among them.

    Returns the rows that now lack only their next token, and the logits after their last one. The
    third value is the share of tokens whose KV was computed before.
    """
    # The oldest goes first, or a stream of short prompts could keep a long one waiting forever.
    table.swap(first, first + int(table.admitted[first : table.running].argmin()))
    pending = table.pending()[first:]
    count, width = plan_prefill(pending.tolist(), budget)
    rows = np.arange(first, first + count)
    sizes = np.minimum(pending[:count], width)
    columns = np.arange(width) - (width - sizes[:, None])
    positions = np.where(columns < 0, PADDING, table.cached[rows, None] + columns)
    ids = table.tokens[rows[:, None], positions.clip(min=0)].astype(np.int64)
    logits_RV = forward(first, ids, positions)
    again = table.computed_before(rows, sizes) / int(sizes.sum())
    table.cached[rows] += sizes
    complete = np.flatnonzero(sizes == pending[:count])
    return rows[complete], logits_RV[torch.from_numpy(complete).to(logits_RV.device)], again


def decode(table: RowTable, forward: CachedForward, count: int) -> tuple[Rows, Tensor]:
    """Return the first `count` rows, and the logits [count, vocabulary] after their last tokens."""
    rows = np.arange(count)
    positions = table.cached[:count].copy()
    ids = table.tokens[rows, positions].astype(np.int64)
    logits_BV = forward(0, ids[:, None], positions[:, None])
    table.cached[:count] += 1
    return rows, logits_BV


def plan_prefill(pending: Sequence[int], budget: int) -> tuple[int, int]:
    """Return how many rows to prefill, from the first on, and the width of the pass in tokens.

    The padded area, rows times width, fits the budget. A first row wider than the budget is taken
    alone and in chunks.
    """
    width = min(pending[0], budget)
    for count, tokens in enumerate(pending[1:], start=1):
        wider = max(width, tokens)
        if (count + 1) * wider > budget:
            return count, width
        width = wider
    return len(pending), width
