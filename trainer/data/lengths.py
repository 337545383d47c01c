"""Session lengths: of all sessions that were begun, and of those with trained tokens. Pure.

Rules that leave sessions out (redundancy, deadlines, staleness, filters) may leave out the long
ones. A difference between the two kinds of lengths shows this. Called by `sessions.py`, by a
step's figures, and by a run's report.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import POLICY

PRUNED = "pruned"
"""A session's status if it was stopped because its group was complete without it."""


class SessionLength(NamedTuple):
    """A session's length, up to its end."""

    tokens: int
    """Tokens sampled by the policy, trained or not."""
    turns: int


class SessionCost(NamedTuple):
    """A session's cost: the turns it took, and their tokens."""

    turns: int
    sampled_tokens: int
    """Tokens sampled by the policy."""
    prompt_tokens: int
    """Prompt tokens summed over turns: all that the engine read before each answer."""


NO_LENGTH = SessionLength(0, 0)

PERCENT = (10, 50, 90, 99)
"""Reported quantiles, in percent."""


def length_of(trajectory: Trajectory) -> SessionLength:
    """Return a finalized session's length."""
    sampled = sum(node.length for node in trajectory.nodes if node.origin == POLICY)
    return SessionLength(sampled, trajectory.turns)


def cost_of(trajectory: Trajectory) -> SessionCost:
    """Return a finalized session's cost."""
    sampled, turns = length_of(trajectory)
    return SessionCost(turns, sampled, prompt_tokens(trajectory))


def prompt_tokens(trajectory: Trajectory) -> int:
    """Return the prompt tokens of all sampled turns in a session, summed.

    A turn reads all tokens before its answer. Tokens that an engine keeps from earlier turns count
    again, as providers count them.
    """
    return sum(_prompts(trajectory))


def first_prompt_tokens(trajectory: Trajectory) -> int:
    """Return how many tokens precede a session's first answer; 0 without an answer."""
    return next(iter(_prompts(trajectory)), 0)


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """Return p10, p50, p90, p99 and the mean, by name; empty without values."""
    numbers = np.fromiter(values, np.float64)
    if not len(numbers):
        return {}
    levels = np.quantile(numbers, [percent / 100 for percent in PERCENT]).tolist()
    named = {f"p{percent}": value for percent, value in zip(PERCENT, levels, strict=True)}
    return {**named, "mean": float(numbers.mean())}


def length_metrics(kind: str, lengths: Iterable[SessionLength]) -> dict[str, float]:
    """Return length quantiles for one kind of session (`begun`, `trained`), as step metrics."""
    measured = list(lengths)
    tokens = quantiles(length.tokens for length in measured)
    turns = quantiles(length.turns for length in measured)
    return {
        **{f"{kind}_tokens/{name}": value for name, value in tokens.items()},
        **{f"{kind}_turns/{name}": value for name, value in turns.items()},
    }


def _prompts(trajectory: Trajectory) -> Collection[int]:
    """Return each sampled turn's prompt tokens, in the order of the answers."""
    before = dict[int, int]()
    prompts = dict[str, int]()
    for node in trajectory.nodes:
        kept = before[node.parent] + node.parent_end if node.parent >= 0 else 0
        before[node.node_id] = kept
        if node.origin == POLICY:
            # A turn that went on after a pause has several nodes; the first follows its prompt.
            prompts.setdefault(node.turn_id, kept)
    return prompts.values()
