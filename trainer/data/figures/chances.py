"""Chances that sessions of a task pass, with their intervals: pass@k (one of k) and pass^k (all).

Each task has an unbiased estimate, and a chance is its mean over tasks. Pure; called by
`evaluation.py` and by the figures of a batch.
"""

from collections.abc import Callable, Iterable, Sequence
from math import comb, sqrt
from statistics import fmean
from typing import NamedTuple

import numpy as np

PASSED = 1.0
"""Least return of a session that passes, unless a setting has another."""
_RESAMPLED = 2_000
_SEED = 20_210_707
TAIL = 0.025
_NORMAL = 1.959963984540054
"""Quantile of the normal distribution that leaves `TAIL` above it."""


class ConfidenceInterval(NamedTuple):
    """A confidence interval of 95%."""

    low: float
    high: float


class PassTerms(NamedTuple):
    """Terms of the chances to pass in an evaluation set."""

    success: float = PASSED
    """Least return of a session that passes."""
    k: tuple[int, ...] = ()
    """Numbers of sessions; empty: 1, 2, 4 and so on."""


USUAL = PassTerms()


class Chances(NamedTuple):
    """Chances by k, each with its interval by k."""

    at: dict[int, float]
    """Chance that one of k sessions of a task passes (pass@k)."""
    at_range: dict[int, ConfidenceInterval]
    all: dict[int, float]
    """Chance that all of k sessions of a task pass (pass^k)."""
    all_range: dict[int, ConfidenceInterval]


TaskPasses = Sequence[tuple[int, int]]
"""Number of sessions of each task, and how many of them pass."""


def chances(counts: TaskPasses, k: Sequence[int] = ()) -> Chances:
    """Return both chances for these k; for 1, 2, 4 and so on if there are none.

    The largest k is at most the number of sessions of the task with the fewest.
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

    `groups`: number of sessions in each group, and how many pass.
    """
    counts = [(size, passing) for size, passing in groups if size]
    return {k: fmean(_estimates(counts, k, one_passes)) for k in _possible(counts, ())}


def one_passes(sessions: int, passing: int, k: int) -> float:
    """Return the unbiased estimate that one of k passes: 1 - C(n - c, k) / C(n, k) if c of n
    sessions pass (arXiv 2107.03374, equation 1).
    """
    return 1 - comb(sessions - passing, k) / comb(sessions, k)


def all_pass(sessions: int, passing: int, k: int) -> float:
    """Return the unbiased estimate that all of k pass: C(c, k) / C(n, k) if c of n sessions pass
    (arXiv 2406.12045, section 4).
    """
    return comb(passing, k) / comb(sessions, k)


def passed(returns: Iterable[float], success: float = PASSED) -> int:
    """Return how many sessions with these returns pass."""
    return sum(value >= success for value in returns)


def interval(estimates: Sequence[float]) -> ConfidenceInterval:
    """Return the interval of the mean of the tasks' estimates, each from 0 to 1; at least one.

    If each is 0 or 1, the mean is a proportion of tasks, and Wilson's interval holds. It also has a
    width where all tasks agree. Otherwise it is the percentile bootstrap over tasks, since sessions
    of one task are alike. Where all estimates are equal, a bootstrap has no width. Wilson's
    interval is then too wide, if anything: no values from 0 to 1 vary more than a proportion.
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
    """Return Wilson's interval of a proportion over `count` independent tasks, at least one."""
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
