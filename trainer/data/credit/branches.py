"""Sums along the branches of a tree, from its leaves to its root. Pure.

`previous_N` names the element before each, `NOWHERE` for the first ones; it comes before those that
follow it. At a fork the mean over the branches counts.
"""

from itertools import accumulate

import numpy as np

from seamlessflow.trainer.data.chains import NOWHERE
from seamlessflow.trainer.data.episodes import Float64s, Int64s


def followers(previous_N: Int64s) -> Int64s:
    """Return how many elements follow each one directly."""
    known_N = previous_N[previous_N != NOWHERE]
    return np.bincount(known_N, minlength=len(previous_N)).astype(np.int64)


def following(previous_N: Int64s, values_N: Float64s) -> Float64s:
    """Return the mean of `values_N` over the elements that follow each directly, 0 for none."""
    later_N = previous_N != NOWHERE
    sums_N = np.bincount(previous_N[later_N], weights=values_N[later_N], minlength=len(previous_N))
    return np.asarray(sums_N / np.maximum(followers(previous_N), 1), np.float64)


def accumulated(previous_N: Int64s, values_N: Float64s, factor: float) -> Float64s:
    """Return x with x_n = value_n + factor x the mean of x over the elements that follow n."""
    if not len(previous_N):
        return np.zeros(0)
    count_N = followers(previous_N)
    after_n = previous_N[1:] == np.arange(len(previous_N) - 1)
    starts = np.flatnonzero(~np.concatenate([[False], after_n & (count_N[:-1] == 1)])).tolist()
    sums_N, found_N = np.zeros(len(previous_N)), np.empty(len(previous_N))
    # Runs without a fork, the last first: what follows a run is known when it is reached.
    for start, end in reversed(list(zip(starts, [*starts[1:], len(previous_N)], strict=True))):
        last = float(sums_N[end - 1]) / max(int(count_N[end - 1]), 1)
        run = values_N[start:end][::-1].tolist()
        sums = accumulate(run, lambda later, value: value + factor * later, initial=last)
        found_N[start:end] = list(sums)[:0:-1]
        if (before := int(previous_N[start])) != NOWHERE:
            sums_N[before] += found_N[start]
    return found_N
