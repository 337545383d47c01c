"""Sessions of a group that pass, and the chance that one of several does. Pure."""

from collections.abc import Iterable
from math import comb
from statistics import fmean

PASSED = 1.0
"""Least return of a session that passes."""


def pass_at_k(groups: Iterable[tuple[int, int]]) -> dict[int, float]:
    """Return the chance that one of k sessions of a group passes, by k of 1, 2, 4 and so on.

    `groups`: sessions of each group, and how many of them pass. Without bias,
    1 - C(n - c, k) / C(n, k) for c of n sessions that pass (arXiv 2107.03374, equation 1), up to
    the size of the smallest group.
    """
    counts = [(size, passed) for size, passed in groups if size]
    chances, k = {}, 1
    while counts and k <= min(size for size, _ in counts):
        chances[k] = fmean(1 - comb(n - c, k) / comb(n, k) for n, c in counts)
        k *= 2
    return chances


def passed(returns: Iterable[float]) -> int:
    """Return how many sessions with these returns pass."""
    return sum(value >= PASSED for value in returns)
