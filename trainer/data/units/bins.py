"""Bins: the chains that go into each micro-batch, so that units of chains stay whole.

A micro-batch holds at most `budget` tokens, padding included; a larger unit gets its own. Pure;
called by packing. `_C` counts chains, `_U` units, whose numbers count from 0.
"""

from bisect import bisect_left, insort

import numpy as np

from seamlessflow.trainer.data.units.membership import Int64s


def row_bins(lengths_C: Int64s, units_C: Int64s, budget: int) -> list[Int64s]:
    """Return the chains of each padded micro-batch, units with the longest chain first.

    The first unit of a micro-batch has its longest chain, so it decides how many rows fit.
    """
    chains_U = members(units_C)
    longest_U = np.zeros(len(chains_U), np.int64)
    np.maximum.at(longest_U, units_C, lengths_C)
    bins: list[list[Int64s]] = []
    rows = width = 0
    for unit in np.argsort(-longest_U, kind="stable").tolist():
        more = len(chains_U[unit])
        if not bins or (rows + more) * width > budget:
            bins.append([])
            rows, width = 0, int(longest_U[unit])
        bins[-1].append(chains_U[unit])
        rows += more
    return [np.concatenate(chosen) for chosen in bins]


def length_bins(lengths_C: Int64s, units_C: Int64s, budget: int) -> list[Int64s]:
    """Return the chains of each packed micro-batch, by best fit decreasing bin packing.

    The longest units go first, each into the fullest bin with room for it.
    """
    chains_U = members(units_C)
    lengths_U = np.zeros(len(chains_U), np.int64)
    np.add.at(lengths_U, units_C, lengths_C)
    bins: list[list[Int64s]] = []
    # Room left and number of each bin, least room first.
    free: list[tuple[int, int]] = []
    for unit in np.argsort(-lengths_U, kind="stable").tolist():
        length = int(lengths_U[unit])
        place = bisect_left(free, (length, -1))
        if place < len(free):
            left, number = free.pop(place)
        else:
            left, number = max(budget, length), len(bins)
            bins.append([])
        bins[number].append(chains_U[unit])
        if left > length:
            insort(free, (left - length, number))
    return [np.concatenate(chosen) for chosen in bins]


def members(units_C: Int64s) -> list[Int64s]:
    """Return the chains of each unit, in their order."""
    order = np.argsort(units_C, kind="stable")
    return np.split(order, np.cumsum(np.bincount(units_C))[:-1])
