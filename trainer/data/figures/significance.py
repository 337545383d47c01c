"""Significance tests for paired differences, one number per task. Pure.

They assume that tasks are drawn at random, independently. Called to compare evaluations, and by the
console to compare runs, where each step stands for a task.
"""

from collections.abc import Mapping, Sequence
from math import comb, fsum, prod

import numpy as np

from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.data.figures.chances import TAIL, ConfidenceInterval

_DRAWS = 20_000
_DRAWS_OF_MANY = 4_000
_SEED = 20_211_202
_MOST_SUMS = 200_000
"""Most sums for which all are computed; if there are more, some are drawn at random."""
_SAME = 1e-9
"""Equal sums may differ in floating point by this part of the largest sum."""


def mcnemar(better: int, worse: int) -> float:
    """Return the exact two-sided p of McNemar's test: a fair coin decides each task that changed.

    `better`, `worse`: how many tasks pass only in the second, and only in the first evaluation.
    """
    changed = better + worse
    tail = sum(comb(changed, count) for count in range(min(better, worse) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def permutation(differences: Sequence[float]) -> float:
    """Return the two-sided p of the paired permutation test on the mean.

    Without an effect each difference might as well have the other sign. All sign combinations count
    if their sums are few; otherwise some are drawn with a fixed seed.
    """
    sizes, times = np.unique(np.abs(np.asarray(differences, np.float64)), return_counts=True)
    groups = {float(size): int(count) for size, count in zip(sizes, times, strict=True) if size > 0}
    if not groups:
        return 1.0
    least = abs(fsum(differences)) - _SAME * fsum(size * n for size, n in groups.items())
    if prod(count + 1 for count in groups.values()) <= _MOST_SUMS:
        sums, chances = _all_sums(groups)
        return min(1.0, float(chances[np.abs(sums) >= least].sum()))
    # The observed signs are one of the draws, so that no p is 0 (doi:10.2202/1544-6115.1585).
    reached = int((np.abs(_drawn_sums(groups)) >= least).sum())
    return (reached + 1) / (_DRAWS + 1)


def bootstrap(differences: Sequence[float]) -> ConfidenceInterval | None:
    """Return the mean difference's 95% percentile interval, from tasks drawn again.

    None if all tasks differ alike: then nothing shows how much other tasks would differ.
    """
    distinct, times = np.unique(np.asarray(differences, np.float64), return_counts=True)
    if len(distinct) < 2:
        return None
    count = len(differences)
    draws = np.random.default_rng(_SEED).multinomial(count, times / count, size=_DRAWS)
    low, high = np.quantile(draws @ distinct / count, [TAIL, 1 - TAIL]).tolist()
    return ConfidenceInterval(low, high)


def bootstraps(rows: Sequence[Sequence[float]]) -> list[ConfidenceInterval | None]:
    """Return each row's interval as `bootstrap` does, but from fewer draws.

    Rows of equal length share the draws, so that hundreds of metrics take no longer than a few.
    """
    intervals: list[ConfidenceInterval | None] = [None] * len(rows)
    for count in {len(row) for row in rows}:
        numbers = [n for n, row in enumerate(rows) if len(row) == count and len({*row}) > 1]
        if not numbers:
            continue
        differences = np.asarray([rows[number] for number in numbers], np.float64)
        times = np.random.default_rng(_SEED).multinomial(
            count, np.full(count, 1 / count), size=_DRAWS_OF_MANY
        )
        means = (times / count) @ differences.T
        lows, highs = np.quantile(means, [TAIL, 1 - TAIL], axis=0).tolist()
        for number, low, high in zip(numbers, lows, highs, strict=True):
            intervals[number] = ConfidenceInterval(low, high)
    return intervals


def _all_sums(groups: Mapping[float, int]) -> tuple[Float64s, Float64s]:
    """Return the sums that all sign combinations give, and each sum's chance.

    `groups`: by size, how many differences have it.
    """
    sums = np.zeros(1)
    chances = np.ones(1)
    for size, count in groups.items():
        positive = range(count + 1)
        steps = np.array([size * (2 * number - count) for number in positive])
        binomial = np.array([comb(count, number) / 2**count for number in positive])
        sums = np.add.outer(sums, steps).ravel()
        chances = np.multiply.outer(chances, binomial).ravel()
    return sums, chances


def _drawn_sums(groups: Mapping[float, int]) -> Float64s:
    generator = np.random.default_rng(_SEED)
    sums = np.zeros(_DRAWS)
    for size, count in groups.items():
        sums += size * (2 * generator.binomial(count, 0.5, size=_DRAWS) - count)
    return sums
