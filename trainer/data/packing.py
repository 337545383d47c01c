"""Packing of chains into micro-batches of limited size, without a Python loop over tokens.

`padded`: one chain per row, rows of similar length together, padded at the end. `packed`: many
chains in one row, each with positions from 0, for attention that keeps them apart. Pure; called by
`steps/one_step.py`. Dimensions: B rows, T columns, N trained tokens of a micro-batch, C chains, S
all tokens of all chains.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainer.data.chains import Chain

Layout = Literal["padded", "packed"]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward and backward pass."""

    ids_BT: Int64s
    positions_BT: Int64s | None
    """Index of each token in its chain; None if every row is one chain."""

    rows_N: Int64s
    columns_N: Int64s
    """Column that predicts the trained token: the one before the token itself."""

    targets_N: Int64s
    logprobs_N: Floats
    """The engine's log-prob of the trained token."""

    temperatures_N: Floats
    """Temperature of that log-prob: the trainer's own is computed at the same one."""

    versions_N: Int32s
    advantages_N: Floats
    chains_N: Int32s
    """Index of the token's chain in the list that was packed."""

    places_N: Int32s
    """Index of the token in that chain."""

    lengths_C: Int64s
    """Tokens of each of its chains."""

    def __len__(self) -> int:
        return len(self.targets_N)


@dataclass(frozen=True, slots=True)
class _Flat:
    """The tokens of all chains, joined, with the length and start of each chain."""

    lengths_C: Int64s
    starts_C: Int64s
    ids_S: Int32s
    trained_S: NDArray[np.bool_]
    logprobs_S: Floats
    temperatures_S: Floats
    versions_S: Int32s
    advantages_S: Floats


def pack(
    chains: Sequence[Chain], budget: int, layout: Layout, padding_id: int = 0
) -> list[MicroBatch]:
    """Return micro-batches with all tokens of all chains.

    A micro-batch holds at most `budget` tokens, padding included; a longer chain gets its own.
    """
    if not chains:
        return []
    flat = _flatten(chains)
    bins = _rows(flat.lengths_C, budget) if layout == "padded" else _bins(flat.lengths_C, budget)
    return [_micro_batch(flat, chosen, layout, padding_id) for chosen in bins]


def empty(padding_id: int = 0) -> MicroBatch:
    """Return a micro-batch without a trained token, for a rank that has less to do than others."""
    none = np.zeros(0, np.int64)
    ints, floats = none.astype(np.int32), none.astype(np.float32)
    ids_BT = np.full((1, 2), padding_id, np.int64)
    return MicroBatch(
        ids_BT, None, none, none, none, floats, floats, ints, floats, ints, ints, none
    )


def shard(batches: Sequence[MicroBatch], ranks: int) -> list[list[MicroBatch]]:
    """Return the micro-batches of each rank: as many for each, of similar size at each index.

    FSDP2 communicates in every pass, so a rank with fewer passes would block the others.
    """
    if not batches:
        return [[] for _ in range(ranks)]
    ordered = sorted(batches, key=lambda batch: -batch.ids_BT.size)
    ordered += [empty()] * (-len(ordered) % ranks)
    return [ordered[rank::ranks] for rank in range(ranks)]


def _flatten(chains: Sequence[Chain]) -> _Flat:
    tokens = [chain.tokens for chain in chains]
    lengths_C = np.fromiter((len(one.ids_T) for one in tokens), np.int64, len(tokens))
    return _Flat(
        lengths_C,
        np.cumsum(lengths_C) - lengths_C,
        np.concatenate([one.ids_T for one in tokens]),
        np.concatenate([one.trained_T for one in tokens]),
        np.concatenate([one.logprobs_T for one in tokens]),
        np.concatenate([one.temperatures_T for one in tokens]),
        np.concatenate([one.versions_T for one in tokens]),
        np.concatenate([one.advantages_T for one in tokens]),
    )


def _rows(lengths_C: Int64s, budget: int) -> list[Int64s]:
    """Return the chains of each padded micro-batch, longest first.

    The first chain of a micro-batch is its longest, so it decides how many rows fit the budget.
    """
    order = np.argsort(-lengths_C, kind="stable")
    cuts, start = [], 0
    while start < len(order):
        rows = max(1, budget // int(lengths_C[order[start]]))
        cuts.append(order[start : start + rows])
        start += rows
    return cuts


def _bins(lengths_C: Int64s, budget: int) -> list[Int64s]:
    """Return the chains of each packed micro-batch, by best fit decreasing bin packing.

    The longest chains go first, each into the fullest bin with room for it.
    """
    bins: list[list[int]] = []
    # Room left and number of each bin, least room first.
    free: list[tuple[int, int]] = []
    for chain in np.argsort(-lengths_C, kind="stable").tolist():
        length = int(lengths_C[chain])
        place = bisect_left(free, (length, -1))
        if place < len(free):
            left, number = free.pop(place)
        else:
            left, number = max(budget, length), len(bins)
            bins.append([])
        bins[number].append(chain)
        if left > length:
            insort(free, (left - length, number))
    return [np.asarray(chosen, np.int64) for chosen in bins]


def _micro_batch(flat: _Flat, chosen: Int64s, layout: Layout, padding_id: int) -> MicroBatch:
    lengths = flat.lengths_C[chosen]
    places = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    sources = np.repeat(flat.starts_C[chosen], lengths) + places
    ids_BT, rows, columns = _laid_out(lengths, places, layout, padding_id)
    ids_BT[rows, columns] = flat.ids_S[sources]
    trained = np.flatnonzero(flat.trained_S[sources])
    from_N = sources[trained]
    chains_N = np.repeat(chosen, lengths)[trained]
    return MicroBatch(
        ids_BT=ids_BT,
        positions_BT=places[None, :] if layout == "packed" else None,
        rows_N=rows[trained],
        columns_N=columns[trained] - 1,
        targets_N=flat.ids_S[from_N].astype(np.int64),
        logprobs_N=flat.logprobs_S[from_N],
        temperatures_N=flat.temperatures_S[from_N],
        versions_N=flat.versions_S[from_N],
        advantages_N=flat.advantages_S[from_N],
        chains_N=chains_N.astype(np.int32),
        places_N=places[trained].astype(np.int32),
        lengths_C=lengths,
    )


def _laid_out(
    lengths: Int64s, places: Int64s, layout: Layout, padding_id: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Return an unfilled block of ids, and the row and column of every token."""
    if layout == "packed":
        columns = np.arange(len(places))
        return np.empty((1, len(places)), np.int64), np.zeros_like(columns), columns
    block = np.full((len(lengths), int(lengths.max())), padding_id, np.int64)
    return block, np.repeat(np.arange(len(lengths)), lengths), places
