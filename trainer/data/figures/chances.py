"""Chances that a task's sessions pass, with their intervals: pass@k (one of k) and pass^k (all).

Each task has an unbiased estimate, and a chance is the mean estimate over tasks. Pure; called by
`evaluation.py` and for a batch's figures.
"""

from collections.abc import Callable, Iterable, Sequence
from math import comb, sqrt
from statistics import fmean
from typing import NamedTuple

import numpy as np

PASSED = 1.0
"""Least return with which a session passes, unless a setting has another."""
_RESAMPLED = 2_000
_SEED = 20_210_707
TAIL = 0.025
_NORMAL = 1.959963984540054
"""The normal distribution's quantile that leaves `TAIL` above it."""


class ConfidenceInterval(NamedTuple):
    """A 95% confidence interval."""

    low: float
    high: float


class PassTerms(NamedTuple):
    """An evaluation set's terms for its chances to pass."""

    success: float = PASSED
    """Least return with which a session passes."""
    k: tuple[int, ...] = ()
    """Session counts; empty: 1, 2, 4 and so on."""


USUAL = PassTerms()


class Chances(NamedTuple):
    """Chances by k, each with its interval by k."""

    at: dict[int, float]
    """Chance that at least one of a task's k sessions passes (pass@k)."""
    at_range: dict[int, ConfidenceInterval]
    all: dict[int, float]
    """Chance that all of a task's k sessions pass (pass^k)."""
    all_range: dict[int, ConfidenceInterval]


TaskPasses = Sequence[tuple[int, int]]
"""Each task's session count, and how many of these sessions pass."""


def chances(counts: TaskPasses, k: Sequence[int] = ()) -> Chances:
    """Return both chances for these k; for 1, 2, 4 and so on if there are none.

    A k is left out if a task has fewer sessions.
    """
    counted = [count for count in counts if count[0]]
    chosen = _possible(counted, k)
    at = {number: _estimates(counted, number, one_passes) for number in chosen}
    every = {number: _estimates(counted, number, all_pass) for number in chosen}
    return Chances(
        {number: fmean(values) for number, values in at.items()},
        {number: interval(values) for number, values in at.items()},
        {number: fmean(values) for number, values in every.items()},
        {number: interval(values) for number, values in every.items()},
    )


def pass_at_k(groups: Iterable[tuple[int, int]]) -> dict[int, float]:
    """Return the chance that one of k sessions in a group passes, by k (1, 2, 4 and so on).

    `groups`: each group's session count, and how many of these sessions pass.
    """
    counts = [(size, passing) for size, passing in groups if size]
    return {k: fmean(_estimates(counts, k, one_passes)) for k in _possible(counts, ())}


def one_passes(sessions: int, passing: int, k: int) -> float:
    """Return the unbiased estimate that one of k sessions passes, if c of n pass.

    It is 1 - C(n - c, k) / C(n, k) (arXiv 2107.03374, equation 1).
    """
    return 1 - comb(sessions - passing, k) / comb(sessions, k)


def all_pass(sessions: int, passing: int, k: int) -> float:
    """Return the unbiased estimate that all of k sessions pass, if c of n pass.

    It is C(c, k) / C(n, k) (arXiv 2406.12045, section 4).
    """
    return comb(passing, k) / comb(sessions, k)


def passed(returns: Iterable[float], success: float = PASSED) -> int:
    """Return how many sessions with these returns pass."""
    return sum(value >= success for value in returns)


def interval(estimates: Sequence[float]) -> ConfidenceInterval:
    """Return the interval for the mean of these estimates: at least one, each from 0 to 1.

    If each estimate is 0 or 1, their mean is a proportion, and Wilson's interval holds. It has a
    width even where all tasks agree. Otherwise it is the percentile bootstrap over tasks, since
    one task's sessions are alike. If all estimates are equal, a bootstrap has no width, so Wilson's
    interval is used. It is then too wide, if anything: no values from 0 to 1 vary more than a
    proportion.
    """
    distinct, times = np.unique(np.asarray(estimates, np.float64), return_counts=True)
    if len(distinct) == 1 or {*distinct.tolist()} <= {0.0, 1.0}:
        return wilson(fmean(estimates), len(estimates))
    # Each resample is a multinomial draw of how often a task with each estimate comes.
    draws = np.random.default_rng(_SEED).multinomial(
        len(estimates), times / len(estimates), size=_RESAMPLED
    )
    means = draws @ distinct / len(estimates)
    low, high = np.quantile(means, [TAIL, 1 - TAIL]).tolist()
    return ConfidenceInterval(low, high)


def wilson(share: float, count: int) -> ConfidenceInterval:
    """Return Wilson's interval for a proportion over `count` independent tasks, at least one."""
    spread = _NORMAL**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
    return ConfidenceInterval(max(0.0, middle - half), min(1.0, middle + half))


def _possible(counts: TaskPasses, k: Sequence[int]) -> list[int]:
    """Return each k that all tasks have sessions for."""
    most = min((size for size, _ in counts), default=0)
    numbers = sorted({*k}) or [2**power for power in range(most.bit_length())]
    return [number for number in numbers if number <= most]


def _estimates(
    counts: TaskPasses, k: int, estimate: Callable[[int, int, int], float]
) -> list[float]:
    return [estimate(size, passing, k) for size, passing in counts]
