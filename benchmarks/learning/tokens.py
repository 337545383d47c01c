"""Curves' figures by sampled tokens: tokens to a reward, and rewards at equal tokens. Pure.

Methods that draw tasks may sample more or fewer tokens in a step, so steps do not compare them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from benchmarks.learning.curves import Curve
from benchmarks.learning.intervals import Estimate, estimate
from benchmarks.learning.loop import Point

HALF = 0.5
"""Reward at which methods are compared."""


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """A row of the table."""

    method: str
    seeds: int
    to_half: float | None
    """Tokens to a reward of 0.5, the mean over the seeds; None if a seed does not reach it."""
    gain: Estimate | None
    """The baseline's tokens to it over this method's, seed by seed."""
    reward: Estimate
    """Held-out reward at equal tokens: the tokens in the seed's shortest curve."""
    difference: Estimate | None
    """To the baseline's, seed by seed."""
    equal_share: float
    """Mean share of groups with equal returns."""


def tokens_to(points: Sequence[Point], reward: float) -> float | None:
    """Return the tokens at which a curve first has a reward, between points linearly."""
    for before, after in pairwise(points):
        if after.reward >= reward:
            share = (reward - before.reward) / (after.reward - before.reward)
            return before.tokens + max(0.0, share) * (after.tokens - before.tokens)
    return None


def reward_at(points: Sequence[Point], tokens: float) -> float:
    """Return a curve's reward at a number of tokens, between points linearly."""
    for before, after in pairwise(points):
        if after.tokens >= tokens:
            share = (tokens - before.tokens) / (after.tokens - before.tokens)
            return before.reward + share * (after.reward - before.reward)
    return points[-1].reward


def token_table(curves: Sequence[Curve], baseline: str) -> list[TokenFigures]:
    """Return each method's figures, in the order of their first curves."""
    methods = list(dict.fromkeys(curve.method for curve in curves))
    shortest = {
        curve.seed: min(other.points[-1].tokens for other in curves if other.seed == curve.seed)
        for curve in curves
    }
    base = {curve.seed: curve for curve in curves if curve.method == baseline}
    return [
        _row([curve for curve in curves if curve.method == method], base, shortest)
        for method in methods
    ]


def _row(curves: Sequence[Curve], base: dict[int, Curve], shortest: dict[int, int]) -> TokenFigures:
    halves = {curve.seed: tokens_to(curve.points, HALF) for curve in curves}
    reached = [tokens for tokens in halves.values() if tokens is not None]
    gains = []
    differences = []
    for curve in curves:
        compared = base.get(curve.seed)
        if compared is None or compared.method == curve.method:
            continue
        equal = shortest[curve.seed]
        differences.append(reward_at(curve.points, equal) - reward_at(compared.points, equal))
        tokens, others = halves[curve.seed], tokens_to(compared.points, HALF)
        if tokens is not None and others is not None:
            gains.append(others / tokens)
    rewards = [reward_at(curve.points, shortest[curve.seed]) for curve in curves]
    shares = [point.equal_share for curve in curves for point in curve.points[1:]]
    return TokenFigures(
        method=curves[0].method,
        seeds=len(curves),
        to_half=fmean(reached) if len(reached) == len(curves) else None,
        gain=estimate(gains) if gains else None,
        reward=estimate(rewards),
        difference=estimate(differences) if differences else None,
        equal_share=fmean(shares),
    )
