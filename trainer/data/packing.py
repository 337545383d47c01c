"""Packing: puts chains into micro-batches with limited size, without a Python loop over tokens.

`padded`: one chain per row, rows with similar length together, padded at the end. `packed`: many
chains in one row, each with positions from 0, for attention that keeps them apart. `tree`: also
many in one row; chains that begin alike share their first tokens (`trees.py`). `auto`: as `padded`,
but chains that begin alike form a tree in one row if that is less work. Pure; called by
`steps/inputs.py`. Dimensions: B rows, T columns, N trained tokens in a micro-batch, C chains, S all
tokens in all chains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seamlessflow.schemas.arrays import Float32s, Float64s, Int32s, Int64s
from seamlessflow.trainer.data.chains import Chain, Column, Columns
from seamlessflow.trainer.data.trees import (
    PrefixOrder,
    prefix_order,
    tree_bins,
    tree_row,
    tree_rows,
)
from seamlessflow.trainer.data.units import length_bins, membership, row_bins, united

Layout = Literal["auto", "padded", "packed", "tree"]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input for one forward and backward pass."""

    ids_BT: Int64s
    positions_BT: Int64s | None
    """Each token's index in its chain; None if every row is one chain."""

    rows_N: Int64s
    columns_N: Int64s
    """Column that predicts the trained token: the column of the token before it in its chain."""

    behind_N: Int64s
    """The trained token's own column."""

    targets_N: Int64s
    logprobs_N: Float32s
    """The engine's log-prob for the trained token."""

    temperatures_N: Float32s
    """Temperature for that log-prob; the trainer computes its own log-prob at the same one."""

    versions_N: Int32s
    advantages_N: Float32s
    chains_N: Int32s
    """The token's chain, as an index into the list that was packed."""

    places_N: Int32s
    """The token's index in that chain."""

    turns_N: Int32s
    """The token's turn; each number is one turn in one session of the step."""

    sessions_N: Int32s
    """The token's session, by its number in the step."""

    weights_N: Float32s
    """The token's weight in the step's loss, which is a weighted sum over all ranks."""

    lengths_C: Int64s
    """Tokens in each chain."""

    columns: Columns = field(default_factory=dict)
    """Columns for the trained tokens, once they are annotated."""

    ends_BT: Int64s | None = None
    """With trees: in row b only columns j to `ends_BT[b, j]` - 1 see the token in column j."""

    def __len__(self) -> int:
        return len(self.targets_N)


@dataclass(frozen=True, slots=True)
class _Flat:
    """All chains' tokens, joined, with each chain's length and start."""

    lengths_C: Int64s
    starts_C: Int64s
    ids_S: Int32s
    trained_S: NDArray[np.bool_]
    logprobs_S: Float32s
    temperatures_S: Float32s
    versions_S: Int32s
    advantages_S: Float32s
    turns_S: Int32s
    sessions_C: Int64s
    weights_C: Float64s
    columns: Mapping[Column, Float32s]
    """Columns over all tokens (S); 0 for tokens that are not trained."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An unfilled id block, and each token's place in it (S)."""

    ids_BT: Int64s
    positions_BT: Int64s | None
    rows_S: Int64s
    columns_S: Int64s
    ends_BT: Int64s | None = None


def pack(
    chains: Sequence[Chain],
    budget: int,
    layout: Layout,
    padding_id: int = 0,
    *,
    units_C: Int64s | None = None,
    weights_C: Float64s | None = None,
    longest: int = 0,
) -> list[MicroBatch]:
    """Return micro-batches with all tokens in all chains.

    Chains with equal numbers in `units_C` stay together; None: each is alone. A micro-batch holds
    at most `budget` tokens; padding counts, and a shared token counts once. A larger unit or chain
    gets its own micro-batch. With `auto`, so does a tree with up to `longest` tokens (`tree_rows`).
    `weights_C`: each chain's weight for one trained token; None: the loss is a mean.
    """
    if not chains:
        return []
    flat = _flatten(chains, weights_C)
    units_C = np.arange(len(chains)) if units_C is None else units_C
    if layout == "tree":
        order = prefix_order([chain.tokens.ids_T for chain in chains])
        bins = tree_bins(order, units_C, budget)
        return [_micro_batch(flat, chosen, _tree(order, chosen)) for chosen in bins]
    if layout == "auto":
        return _shared_rows(
            flat,
            prefix_order([chain.tokens.ids_T for chain in chains]),
            budget,
            units_C,
            padding_id,
            longest,
        )
    fill, laid_out = (row_bins, _padded) if layout == "padded" else (length_bins, _packed)
    bins = fill(flat.lengths_C, units_C, budget)
    lengths = [flat.lengths_C[chosen] for chosen in bins]
    return [
        _micro_batch(flat, chosen, laid_out(lengths_C, padding_id))
        for chosen, lengths_C in zip(bins, lengths, strict=True)
    ]


def tokens_saved(batches: Sequence[MicroBatch]) -> dict[str, float]:
    """Return the share of the chains' tokens that trees save, as a metric; empty without trees."""
    trees = [batch for batch in batches if batch.ends_BT is not None]
    tokens = sum(int(batch.lengths_C.sum()) for batch in trees)
    computed = sum(batch.ids_BT.size for batch in trees)
    return {"tokens_saved": 1 - computed / tokens} if tokens else {}


def empty(padding_id: int = 0) -> MicroBatch:
    """Return a micro-batch without a trained token, for a rank with less work than others."""
    none = np.zeros(0, np.int64)
    ints = none.astype(np.int32)
    floats = none.astype(np.float32)
    ids_BT = np.full((1, 2), padding_id, np.int64)
    return MicroBatch(
        ids_BT=ids_BT,
        positions_BT=None,
        rows_N=none,
        columns_N=none,
        behind_N=none,
        targets_N=none,
        logprobs_N=floats,
        temperatures_N=floats,
        versions_N=ints,
        advantages_N=floats,
        chains_N=ints,
        places_N=ints,
        turns_N=ints,
        sessions_N=ints,
        weights_N=floats,
        lengths_C=none,
    )


def shard(batches: Sequence[MicroBatch], ranks: int) -> list[list[MicroBatch]]:
    """Return each rank's micro-batches: equally many, with similar sizes at each index.

    FSDP2 communicates in every pass, so a rank with fewer passes would block the others.
    """
    if not batches:
        return [[] for _ in range(ranks)]
    ordered = sorted(batches, key=lambda batch: -batch.ids_BT.size)
    ordered += [empty()] * (-len(ordered) % ranks)
    return [ordered[rank::ranks] for rank in range(ranks)]


def _shared_rows(
    flat: _Flat, order: PrefixOrder, budget: int, units_C: Int64s, padding_id: int, longest: int
) -> list[MicroBatch]:
    """Return micro-batches with the trees of `tree_rows`, whole units together."""
    trees = tree_rows(order, units_C, budget, longest)
    widths_R = np.fromiter(map(order.tokens, trees), np.int64, len(trees))
    bins = row_bins(widths_R, united([units_C[chosen] for chosen in trees]), budget)
    batches = []
    for chosen in bins:
        rows = [trees[row] for row in chosen]
        chains = np.concatenate(rows)
        # Without shared tokens no mask is needed: it would equal the models' usual one.
        alone = len(rows) == len(chains)
        row = (
            _padded(order.lengths_C[chains], padding_id)
            if alone
            else _trees(order, rows, padding_id)
        )
        batches.append(_micro_batch(flat, chains, row))
    return batches


def _flatten(chains: Sequence[Chain], weights_C: Float64s | None) -> _Flat:
    tokens = [chain.tokens for chain in chains]
    lengths_C = np.fromiter((len(token.ids_T) for token in tokens), np.int64, len(tokens))
    trained_S = np.concatenate([token.trained_T for token in tokens])
    if weights_C is None:
        weights_C = np.full(len(chains), 1 / max(1, int(trained_S.sum())))
    members = membership(chains)
    turns_S = np.concatenate([token.turns_T for token in tokens])
    return _Flat(
        lengths_C,
        np.cumsum(lengths_C) - lengths_C,
        np.concatenate([token.ids_T for token in tokens]),
        trained_S,
        np.concatenate([token.logprobs_T for token in tokens]),
        np.concatenate([token.temperatures_T for token in tokens]),
        np.concatenate([token.versions_T for token in tokens]),
        np.concatenate([token.advantages_T for token in tokens]),
        turns_S + np.repeat(members.first_turns_C, lengths_C).astype(np.int32),
        members.sessions_C,
        weights_C,
        _columns(chains),
    )


def _columns(chains: Sequence[Chain]) -> Mapping[Column, Float32s]:
    """Return each column over all tokens (S) in all chains."""
    trained_S = np.concatenate([chain.tokens.trained_T for chain in chains])
    columns = {}
    for name in chains[0].columns:
        columns[name] = np.zeros(len(trained_S), np.float32)
        columns[name][trained_S] = np.concatenate([chain.columns[name] for chain in chains])
    return columns


def _micro_batch(flat: _Flat, chosen: Int64s, row: _Row) -> MicroBatch:
    lengths = flat.lengths_C[chosen]
    places = _places(lengths)
    sources = np.repeat(flat.starts_C[chosen], lengths) + places
    row.ids_BT[row.rows_S, row.columns_S] = flat.ids_S[sources]
    trained = np.flatnonzero(flat.trained_S[sources])
    from_N = sources[trained]
    chains_N = np.repeat(chosen, lengths)[trained]
    return MicroBatch(
        ids_BT=row.ids_BT,
        positions_BT=row.positions_BT,
        rows_N=row.rows_S[trained],
        # A chain's first token is never trained.
        columns_N=row.columns_S[trained - 1],
        behind_N=row.columns_S[trained],
        targets_N=flat.ids_S[from_N].astype(np.int64),
        logprobs_N=flat.logprobs_S[from_N],
        temperatures_N=flat.temperatures_S[from_N],
        versions_N=flat.versions_S[from_N],
        advantages_N=flat.advantages_S[from_N],
        chains_N=chains_N.astype(np.int32),
        places_N=places[trained].astype(np.int32),
        turns_N=flat.turns_S[from_N],
        sessions_N=flat.sessions_C[chains_N].astype(np.int32),
        weights_N=flat.weights_C[chains_N].astype(np.float32),
        lengths_C=lengths,
        columns={name: of_S[from_N] for name, of_S in flat.columns.items()},
        ends_BT=row.ends_BT,
    )


def _padded(lengths_C: Int64s, padding_id: int) -> _Row:
    block = np.full((len(lengths_C), int(lengths_C.max())), padding_id, np.int64)
    return _Row(block, None, np.repeat(np.arange(len(lengths_C)), lengths_C), _places(lengths_C))


def _packed(lengths_C: Int64s, _: int) -> _Row:
    places_S = _places(lengths_C)
    columns_S = np.arange(len(places_S))
    ids_BT = np.empty((1, len(places_S)), np.int64)
    return _Row(ids_BT, places_S[None, :], np.zeros_like(columns_S), columns_S)


def _tree(order: PrefixOrder, chosen: Int64s) -> _Row:
    return _trees(order, [chosen], 0)


def _trees(order: PrefixOrder, trees: Sequence[Int64s], padding_id: int) -> _Row:
    """Return a block whose rows each hold a tree with these ordered chains, padded at the end."""
    placed = [tree_row(order.lengths_C[chosen], order.shared(chosen)) for chosen in trees]
    rows_S = np.repeat(np.arange(len(trees)), [len(columns_S) for columns_S, _ in placed])
    columns_S = np.concatenate([columns_S for columns_S, _ in placed])
    width = max(len(ends_T) for _, ends_T in placed)
    ends_BT = np.full((len(trees), width), width)
    for row, (_, ends_T) in enumerate(placed):
        ends_BT[row, : len(ends_T)] = ends_T
    positions_BT = np.zeros_like(ends_BT)
    positions_BT[rows_S, columns_S] = _places(order.lengths_C[np.concatenate(trees)])
    return _Row(np.full_like(ends_BT, padding_id), positions_BT, rows_S, columns_S, ends_BT)


def _places(lengths_C: Int64s) -> Int64s:
    """Return every token's index in its chain."""
    return np.arange(int(lengths_C.sum())) - np.repeat(np.cumsum(lengths_C) - lengths_C, lengths_C)
