"""Turn masks: rules that take tokens out of the loss once a batch is annotated.

Registered by name (`TURN_MASKS`; the setting `trainer.masks` also has each one's settings). A mask
sees a group's sessions with the entropies that the policy computed. `trainer.loss.masks` are other
masks: they see ratios, in the loss. Pure; called between annotation and advantages. `_N` counts a
session's trained tokens, `_K` its turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.infra.user_functions import OwnSettings, ResultMalformed, chosen
from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import Chain, Column, without
from seamlessflow.trainer.data.episodes import Episode, episode
from seamlessflow.trainer.data.methods import method

KeptTokens = Sequence[NDArray[np.bool_]]
"""For each session in a group, which trained tokens (N) stay in the loss."""
TurnMask = Callable[..., KeptTokens]
"""Takes a group's sessions, and its settings by their names."""


def high_entropy_turns(episodes: Sequence[Episode], *, keep: float = 0.8) -> list[NDArray[Any]]:
    """Keep the tokens in turns whose mean entropy is at least the group's quantile 1 - `keep`.

    DART, arXiv 2509.23866, keeps 0.8: a turn in which the policy is already sure teaches it little.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep is the share of turns that stay, above 0 and at most 1, not {keep}")
    means = [_turn_means(of_session) for of_session in episodes]
    all_turns = np.concatenate([np.zeros(0), *(mean_K[~np.isnan(mean_K)] for mean_K in means)])
    if not len(all_turns):
        return [np.ones(len(of_session), bool) for of_session in episodes]
    least = float(np.quantile(all_turns, 1 - keep))
    return [
        mean_K[of_session.turns_N] >= least
        for mean_K, of_session in zip(means, episodes, strict=True)
    ]


TURN_MASKS: Mapping[str, TurnMask] = {"high_entropy_turns": high_entropy_turns}


def masked_batch(batch: Batch, masks: OwnSettings) -> Batch:
    """Return the batch without the tokens that these masks take out, counted by mask.

    `masks`: each mask's settings by its name, in the order of application. Raises `MethodFailed`.
    """
    for name, settings in masks.items():
        batch = replace(
            batch, groups=tuple(_masked(group, name, settings) for group in batch.groups)
        )
    return batch


def checked_kept(kept: KeptTokens, episodes: Sequence[Episode]) -> KeptTokens:
    """Return a mask's answer after a check. Raises `ResultMalformed`."""
    if len(kept) != len(episodes):
        raise ResultMalformed(f"masks of {len(kept)} sessions", f"of {len(episodes)}")
    arrays = [np.asarray(of_session) for of_session in kept]
    for number, (kept_N, of_session) in enumerate(zip(arrays, episodes, strict=True)):
        if kept_N.dtype != bool or kept_N.shape != (len(of_session),):
            got = f"a mask of {kept_N.dtype} of shape {list(kept_N.shape)} for session {number}"
            raise ResultMalformed(got, f"of bool of {[len(of_session)]}, one for each token")
    return arrays


def _masked(prepared: Prepared, name: str, settings: Mapping[str, Any]) -> Prepared:
    """Return a group without a mask's tokens."""
    if not prepared.chains:
        return prepared
    sessions = prepared.trained_sessions()
    episodes = [
        episode(chains, session.shaped, session.turn_rewards, session.values)
        for session, chains in sessions
    ]
    with method("mask", name):
        mask = partial(chosen(TURN_MASKS, name, {}), **settings)
        kept = checked_kept(mask(episodes), episodes)
    left: list[Chain] = []
    lost = 0
    for (_, chains), kept_N in zip(sessions, kept, strict=True):
        ends = np.cumsum([chain.trained() for chain in chains])[:-1]
        parts = np.split(kept_N, ends) if chains else []
        changed = map(_without, chains, parts)
        left += [chain for chain in changed if chain is not None]
        lost += int(np.count_nonzero(~kept_N))
    counts = {name: lost} if lost else {}
    return replace(prepared, chains=tuple(left), masked_after={**prepared.masked_after, **counts})


def _without(chain: Chain, kept_N: NDArray[np.bool_]) -> Chain | None:
    """Return the chain with only these trained tokens and their columns; None if none is left."""
    if kept_N.all():
        return chain
    masked_T = np.zeros(len(chain), bool)
    masked_T[chain.tokens.trained_T] = ~kept_N
    left = without(chain, masked_T)
    if left is None:
        return None
    columns = {name: column_N[kept_N] for name, column_N in chain.columns.items()}
    return replace(left, columns=columns)


def _turn_means(of_session: Episode) -> Float64s:
    """Return each turn's mean entropy (K), NaN for a turn without a trained token."""
    entropies_N = of_session.column(Column.ENTROPY)
    turns = int(of_session.turns_N.max(initial=-1)) + 1
    counts_K = np.bincount(of_session.turns_N, minlength=turns)
    sums_K = np.bincount(of_session.turns_N, entropies_N, minlength=turns)
    return np.where(counts_K > 0, sums_K / np.maximum(counts_K, 1), np.nan)
