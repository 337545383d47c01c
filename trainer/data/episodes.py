"""Episodes: each session's trained tokens as a tree, with the session's rewards.

Advantage estimators see only a session's episode. They sum along the tree's branches; at a fork
they take the mean over the branches. Pure; called by `batch.py`. `_N` counts a session's trained
tokens in chain order, `_K` its turns. `previous_N` has, for each element, the index of the element
before it, `NOWHERE` for a first one. An element comes before its followers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate

import numpy as np

from seamlessflow.schemas.arrays import Float64s, Int32s, Int64s
from seamlessflow.trainer.data.chains import NOWHERE, Chain, Column


@dataclass(frozen=True)
class Episode:
    """A session as an advantage estimator sees it.

    The tree is computed only when an estimator uses it; those that see only returns do not.
    """

    reward: float
    """The session's return."""

    turn_rewards_K: Float64s
    """Each turn's reward, 0 for a turn without one."""

    turns_N: Int32s
    """Each trained token's turn."""

    previous: Callable[[], Int64s]
    """Returns `previous_N`."""

    columns: Mapping[Column, Float64s] = field(default_factory=dict)
    """Columns for the trained tokens, once they are annotated."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    """Each name's last session reward, without weights and without punishment."""

    demonstration: bool = False
    """True if another system sampled some of its tokens."""

    intervened: int = 0
    """Turns numbered below this precede the session's last intervention."""

    def __len__(self) -> int:
        return len(self.turns_N)

    def column(self, name: Column) -> Float64s:
        """Return a column; it may be missing for a session without a trained token."""
        return self.columns[name] if len(self) else np.zeros(0)

    @cached_property
    def previous_N(self) -> Int64s:
        """Return, for each trained token, the place of the one before it on its branch.

        It is `NOWHERE` for a first one.
        """
        return self.previous()

    @cached_property
    def previous_turns(self) -> dict[int, int]:
        """Return the turn before each turn that has a trained token; `NOWHERE` for a first one.

        Earlier turns come first.
        """
        previous: dict[int, int] = {}
        for turn, first in zip(*np.unique(self.turns_N, return_index=True), strict=True):
            before = int(self.previous_N[first])
            previous[int(turn)] = NOWHERE if before == NOWHERE else int(self.turns_N[before])
        return previous


def episode(
    chains: Sequence[Chain],
    reward: float,
    turn_rewards: Mapping[str, float],
    rewards: Mapping[str, float] | None = None,
) -> Episode:
    """Return a session's episode from its chains; `turn_rewards` by the turn's id."""
    by_name = rewards or {}
    if not chains:
        nowhere = np.zeros(0, np.int64)
        return Episode(reward, np.zeros(0), np.zeros(0, np.int32), lambda: nowhere, rewards=by_name)
    turns_N = np.concatenate([chain.tokens.turns_T[chain.tokens.trained_T] for chain in chains])
    of_turns = [turn_rewards.get(turn, 0.0) for turn in chains[0].turns]
    rewards_K = np.array(of_turns, np.float64)
    columns = {
        name: np.concatenate([chain.columns[name] for chain in chains]).astype(np.float64)
        for name in chains[0].columns
    }
    previous = partial(_previous, chains)
    return Episode(reward, rewards_K, turns_N, previous, columns, by_name)


def followers(previous_N: Int64s) -> Int64s:
    """Return how many elements follow each one directly."""
    known_N = previous_N[previous_N != NOWHERE]
    return np.bincount(known_N, minlength=len(previous_N)).astype(np.int64)


def following(previous_N: Int64s, values_N: Float64s) -> Float64s:
    """Return the mean of `values_N` over each element's direct followers; 0 without any."""
    later_N = previous_N != NOWHERE
    sums_N = np.bincount(previous_N[later_N], weights=values_N[later_N], minlength=len(previous_N))
    return np.asarray(sums_N / np.maximum(followers(previous_N), 1), np.float64)


def accumulated(previous_N: Int64s, values_N: Float64s, factor: float) -> Float64s:
    """Return y with y_n = value_n + factor x (mean of y over the elements that follow n)."""
    if not len(previous_N):
        return np.zeros(0)
    count_N = followers(previous_N)
    after_n = previous_N[1:] == np.arange(len(previous_N) - 1)
    starts = np.flatnonzero(~np.concatenate([[False], after_n & (count_N[:-1] == 1)])).tolist()
    sums_N = np.zeros(len(previous_N))
    found_N = np.empty(len(previous_N))
    # Runs without a fork, last run first, so a run's followers are known when it is reached.
    for start, end in reversed(list(zip(starts, [*starts[1:], len(previous_N)], strict=True))):
        last = float(sums_N[end - 1]) / max(int(count_N[end - 1]), 1)
        run = values_N[start:end][::-1].tolist()
        sums = accumulate(run, lambda later, value: value + factor * later, initial=last)
        found_N[start:end] = list(sums)[:0:-1]
        if (before := int(previous_N[start])) != NOWHERE:
            sums_N[before] += found_N[start]
    return found_N


def _previous(chains: Sequence[Chain]) -> Int64s:
    """Return `previous_N` over all chains, in their order."""
    keys_N = np.concatenate([_keys(chain)[chain.tokens.trained_T] for chain in chains])
    order_N = np.argsort(keys_N, kind="stable")
    sorted_N = keys_N[order_N]
    places = []
    for chain in chains:
        keys_T = _keys(chain)
        trained_T = chain.tokens.trained_T
        at_T = np.minimum(np.searchsorted(sorted_N, keys_T), len(sorted_N) - 1)
        # A token that another chain trains is on this branch too.
        known_T = sorted_N[at_T] == keys_T
        path = order_N[at_T[known_T]]
        before = np.concatenate([[NOWHERE], path[:-1]])
        places.append(before[trained_T[known_T]])
    return np.concatenate(places).astype(np.int64)


def _keys(chain: Chain) -> Int64s:
    """Return one number for each token, made from its turn and its place in the turn."""
    tokens = chain.tokens
    return (tokens.turns_T.astype(np.int64) << 32) + tokens.offsets_T
