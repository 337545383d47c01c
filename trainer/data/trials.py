"""Trials: each calls a user's advantage, filter or other method on a small input. Pure.

A trial returns the function's answer, so that two can be compared. It raises the function's errors,
and `ResultMalformed`.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seamlessflow.schemas.arrays import Int64s
from seamlessflow.trainer.data.advantages import ReturnRules
from seamlessflow.trainer.data.aggregations import checked_weights
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.filters import GroupView
from seamlessflow.trainer.data.methods import checked_advantages, checked_verdict
from seamlessflow.trainer.data.pairs import checked_pairs
from seamlessflow.trainer.data.selection import SelectionRules, checked_selection
from seamlessflow.trainer.data.turn_masks import checked_kept
from seamlessflow.trainer.loss import LossSection

_RETURNS = (1.0, 0.0, 0.25)
_TOKENS_OF_TURNS = ((2, 3), (4,), (1, 1, 2))
"""Each turn's trained tokens, by session."""


def group_of_three() -> list[Episode]:
    """Return three sessions, one to three turns long; returns differ, last turns are rewarded."""
    return [
        _session(reward, tokens) for reward, tokens in zip(_RETURNS, _TOKENS_OF_TURNS, strict=True)
    ]


def try_advantage(function: Callable[..., Any]) -> list[list[float]]:
    """Call a function for the seam `trainer.advantage`."""
    episodes = group_of_three()
    advantages = checked_advantages(function(episodes, ReturnRules()), episodes)
    return [advantages_N.tolist() for advantages_N in advantages]


def try_filter(function: Callable[..., Any]) -> bool:
    """Call a function for the seam `trainer.filters`."""
    return checked_verdict(function(GroupView(group_of_three(), ()), ReturnRules()))


def try_selection(function: Callable[..., Any]) -> list[bool]:
    """Call a function for the seam `trainer.selection.name`."""
    episodes = group_of_three()
    source = random.Random(0)  # nosec B311 # repeatable draws
    verdicts = function(episodes, SelectionRules(), source)
    return checked_selection(verdicts, len(episodes))


def try_pairs(function: Callable[..., Any]) -> list[tuple[int, int]]:
    """Call a function for the seam `trainer.pairs.name`."""
    episodes = group_of_three()
    return checked_pairs(function(episodes), len(episodes))


def try_mask(function: Callable[..., Any]) -> list[list[bool]]:
    """Call a function for the seam `trainer.masks`."""
    episodes = group_of_three()
    return [kept_N.tolist() for kept_N in checked_kept(function(episodes), episodes)]


def try_aggregation(function: Callable[..., Any]) -> list[float]:
    """Call a function for the seam `trainer.loss.aggregation`."""
    sessions_C = np.array([0, 0, 1])
    trained_C = np.array([2, 3, 4])
    weights = checked_weights(function(sessions_C, trained_C, LossSection()), len(sessions_C))
    values: list[float] = weights.tolist()
    return values


def _session(reward: float, tokens_of_turns: Sequence[int]) -> Episode:
    turns_N = np.repeat(np.arange(len(tokens_of_turns), dtype=np.int32), tokens_of_turns)
    rewards_K = np.zeros(len(tokens_of_turns))
    rewards_K[-1] = reward

    def previous() -> Int64s:
        return np.arange(-1, len(turns_N) - 1)

    columns = {Column.ENTROPY: np.linspace(0.1, 2.0, len(turns_N))}
    return Episode(reward, rewards_K, turns_N, previous, columns, {"reward": reward})
