"""Episodes: the trained tokens of a session as the tree that they form, with the session's rewards.

Estimators of advantages see nothing else of a session. Pure; called by `batch.py`. `_N` counts the
trained tokens of a session in the order of its chains, `_K` its turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from seamlessflow.trainer.data.chains import NOWHERE, Chain, Int32s
from seamlessflow.trainer.data.credit.columns import Column

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Episode:
    """A session as an estimator of advantages sees it.

    The tree is computed when an estimator looks at it, which those that see returns alone do not.
    """

    reward: float
    """Return of the session."""

    turn_rewards_K: Float64s
    """Reward of each turn, 0 for a turn without one."""

    turns_N: Int32s
    """Turn of each trained token."""

    previous: Callable[[], Int64s]
    """Returns `previous_N`."""

    columns: Mapping[Column, Float64s] = field(default_factory=dict)
    """Columns of the trained tokens, once they are annotated."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    """Last session reward of each name, without weights and without punishment."""

    def __len__(self) -> int:
        return len(self.turns_N)

    def column(self, name: Column) -> Float64s:
        """Return a column; of a session without a trained token none need be there."""
        return self.columns[name] if len(self) else np.zeros(0)

    @cached_property
    def previous_N(self) -> Int64s:
        """Place of the trained token before each on its branch; `NOWHERE` for the first ones."""
        return self.previous()

    @cached_property
    def previous_turns(self) -> dict[int, int]:
        """The turn before each turn that has a trained token; `NOWHERE` for the first ones.

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
    """Return the episode of a session with these chains; `turn_rewards` by the id of the turn."""
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


def _previous(chains: Sequence[Chain]) -> Int64s:
    """Return the place of the trained token before each, over all chains one after the other."""
    keys_N = np.concatenate([_keys(chain)[chain.tokens.trained_T] for chain in chains])
    order_N = np.argsort(keys_N, kind="stable")
    sorted_N = keys_N[order_N]
    places = []
    for chain in chains:
        keys_T, trained_T = _keys(chain), chain.tokens.trained_T
        at_T = np.minimum(np.searchsorted(sorted_N, keys_T), len(sorted_N) - 1)
        # A token that another chain trains is on this branch too.
        known_T = sorted_N[at_T] == keys_T
        path = order_N[at_T[known_T]]
        before = np.concatenate([[NOWHERE], path[:-1]])
        places.append(before[trained_T[known_T]])
    return np.concatenate(places).astype(np.int64)


def _keys(chain: Chain) -> Int64s:
    """Return one number for each token that says which token of which turn it is."""
    tokens = chain.tokens
    return (tokens.turns_T.astype(np.int64) << 32) + tokens.offsets_T
