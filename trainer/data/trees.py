"""Trees: chains that begin alike, laid out in one row with each shared token once.

A token's hidden state depends only on the tokens up to it, so chains with equal first tokens can
share them. A forked session has such chains, and so does a group, since its sessions begin with
the same prompt. After Tree Training, arXiv 2511.00413. Pure; called by packing. `_C` counts chains,
`_R` chains ordered by their tokens, `_S` all tokens in all chains, `_T` tokens in a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seamlessflow.schemas.arrays import Int64s
from seamlessflow.trainer.data.units import length_bins, members, root, united
from seamlessflow.trainer.parallelism import PAIRS, TREE_TOKENS


@dataclass(frozen=True, slots=True)
class PrefixOrder:
    """Chains ordered by their token ids, so that chains that begin alike stand together."""

    lengths_C: Int64s
    ranks_C: Int64s
    """Each chain's place in that order."""
    shared_R: Int64s
    """Count of first tokens that each chain shares with the previous one in that order."""

    def ordered(self, chosen: Int64s) -> Int64s:
        """Return these chains, ordered by their tokens."""
        return chosen[np.argsort(self.ranks_C[chosen], kind="stable")]

    def shared(self, ordered: Int64s) -> Int64s:
        """Return how many first tokens each ordered chain shares with the previous one."""
        ranks = self.ranks_C[ordered]
        counts = np.zeros(len(ordered), np.int64)
        if len(ordered) > 1:
            counts[1:] = np.minimum.reduceat(self.shared_R[: ranks[-1] + 1], ranks[:-1] + 1)
        return counts

    def tokens(self, ordered: Int64s) -> int:
        """Return how many tokens these ordered chains have as trees."""
        return int((self.lengths_C[ordered] - self.shared(ordered)).sum())


def prefix_order(ids: Sequence[NDArray[np.int32]]) -> PrefixOrder:
    """Return the chains' order by these token ids, none negative."""
    # Bytes compare as the ids do if the most significant one comes first.
    keys = [of_chain.astype(">u4").tobytes() for of_chain in ids]
    chains = sorted(range(len(ids)), key=keys.__getitem__)
    shared = [0, *(_shared(ids[first], ids[other]) for first, other in pairwise(chains))]
    ranks_C = np.empty(len(ids), np.int64)
    ranks_C[chains] = np.arange(len(ids))
    lengths_C = np.fromiter(map(len, ids), np.int64, len(ids))
    return PrefixOrder(lengths_C, ranks_C, np.array(shared[: len(ids)], np.int64))


def tree_bins(order: PrefixOrder, units_C: Int64s, budget: int) -> list[Int64s]:
    """Return each micro-batch's ordered chains: units that begin alike together.

    A micro-batch holds at most `budget` tokens, a shared one counted once; a larger unit gets its
    own. Units that share most are joined first, so no group is divided to fill a micro-batch.
    """
    trees = _joined(order, units_C, lambda *trees: order.tokens(trees[-1]) <= budget)
    in_order = sorted(trees, key=lambda chosen: int(order.ranks_C[chosen[0]]))
    sizes = np.fromiter(map(order.tokens, in_order), np.int64, len(in_order))
    bins = length_bins(sizes, np.arange(len(in_order)), budget)
    return [order.ordered(np.concatenate([in_order[tree] for tree in chosen])) for chosen in bins]


def tree_rows(order: PrefixOrder, units_C: Int64s, budget: int, longest: int = 0) -> list[Int64s]:
    """Return each row's ordered chains: those that begin alike together, where that pays.

    A tree saves its shared tokens, but attention computes all pairs among its tokens. It has at
    most `budget` tokens, or up to twice its longest chain if `longest` allows that many, and never
    more than `TREE_TOKENS`. If units hold several rows together, these must fit that room with
    padding; else no row has more than one unit. Rows are ordered by their first chains.
    """

    def room(chosen: Int64s) -> int:
        return max(budget, min(longest, 2 * int(order.lengths_C[chosen].max())))

    def pays(first: Int64s, other: Int64s, together: Int64s) -> bool:
        apart = order.tokens(first), order.tokens(other)
        size = order.tokens(together)
        more_pairs = size**2 - apart[0] ** 2 - apart[1] ** 2
        fits = size <= min(room(together), TREE_TOKENS)
        return fits and more_pairs < PAIRS * (sum(apart) - size)

    trees = _joined(order, np.arange(len(units_C)), pays)
    rows: list[Int64s] = []
    for held in members(united([units_C[tree] for tree in trees])):
        of_units = [trees[row] for row in held]
        size = len(of_units) * max(map(order.tokens, of_units))
        divided = size > room(np.concatenate(of_units))
        for tree in of_units:
            names = np.unique(units_C[tree]) if divided else [units_C[tree]]
            rows += [tree[np.isin(units_C[tree], name)] for name in names]
    return sorted(rows, key=lambda chosen: int(chosen.min()))


def tree_row(lengths_C: Int64s, shared_C: Int64s) -> tuple[Int64s, Int64s]:
    """Return each token's column (S) in ordered chains, and each column's end (T).

    The tokens that see a token follow it in one run, up to its end.
    """
    tokens = int((lengths_C - shared_C).sum())
    ends_T = np.full(tokens, tokens, np.int64)
    columns = []
    path = np.zeros(0, np.int64)
    start = 0
    for length, shared in zip(lengths_C.tolist(), shared_C.tolist(), strict=True):
        ends_T[path[shared:]] = start
        end = start + length - shared
        path = np.concatenate([path[:shared], np.arange(start, end)])
        columns.append(path)
        start = end
    return np.concatenate(columns), ends_T


def _joined(
    order: PrefixOrder, units_C: Int64s, joins: Callable[[Int64s, Int64s, Int64s], bool]
) -> list[Int64s]:
    """Return trees of ordered chains: whole units, those that share most joined first.

    `joins` decides from the first tree's chains, the other tree's, and the joined tree's.
    """
    trees = {unit: order.ordered(chosen) for unit, chosen in enumerate(members(units_C))}
    units_R = units_C[np.argsort(order.ranks_C)].tolist()
    joined = list(range(len(trees)))
    for rank in np.argsort(-order.shared_R, kind="stable").tolist():
        if not order.shared_R[rank]:
            break
        first, other = sorted(root(joined, units_R[place]) for place in (rank - 1, rank))
        if first == other:
            continue
        together = order.ordered(np.concatenate([trees[first], trees[other]]))
        if joins(trees[first], trees[other], together):
            trees[first] = together
            joined[other] = first
            del trees[other]
    return list(trees.values())


def _shared(first: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    size = min(len(first), len(other))
    different = first[:size] != other[:size]
    return int(different.argmax()) if different.any() else size
