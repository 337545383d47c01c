"""Units: chains that must stay in one micro-batch; and bins: the units in each micro-batch.

Sessions and turns are numbered from 0 within an optimizer step, in chain order. So the numbers are
the same however the chains are packed. A micro-batch holds at most `budget` tokens, padding
included; a larger unit gets its own. Pure; called by packing and by `steps/inputs.py`. `_C` counts
chains, `_U` units, whose numbers begin at 0.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.schemas.arrays import Int64s
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.loss import Unit


@dataclass(frozen=True, slots=True)
class Membership:
    """For each chain, its session's number and the session's first turn's number."""

    sessions_C: Int64s
    first_turns_C: Int64s
    """A turn's number is this plus its place in the chain's `turns`."""


def membership(chains: Sequence[Chain]) -> Membership:
    """Number the chains' sessions and turns."""
    numbers: dict[str, int] = {}
    first_turns: list[int] = []
    turns = 0
    for chain in chains:
        if chain.session_id not in numbers:
            numbers[chain.session_id] = len(numbers)
            first_turns.append(turns)
            turns += len(chain.turns)
    sessions = [numbers[chain.session_id] for chain in chains]
    of_sessions = np.array(first_turns, np.int64)
    return Membership(np.array(sessions, np.int64), of_sessions[sessions])


def units(kind: Unit, chains: Sequence[Chain], groups_C: Sequence[int]) -> Int64s:
    """Return each chain's unit, as a number; a unit must stay in one micro-batch.

    `token`: each chain is a unit. `turn`: all chains that train tokens from one turn, since a fork
    within a completion divides it. `session`, `group`: all its chains. `groups_C`: each chain's
    group number.
    """
    match kind:
        case "token":
            return np.arange(len(chains), dtype=np.int64)
        case "turn":
            return _joined_by_turns(chains)
        case "session":
            return membership(chains).sessions_C
        case "group":
            return _dense(groups_C)


def row_bins(lengths_C: Int64s, units_C: Int64s, budget: int) -> list[Int64s]:
    """Return each padded micro-batch's chains, units with the longest chain first.

    A micro-batch's first unit has its longest chain, so it decides how many rows fit.
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
            rows = 0
            width = int(longest_U[unit])
        bins[-1].append(chains_U[unit])
        rows += more
    return [np.concatenate(chosen) for chosen in bins]


def length_bins(lengths_C: Int64s, units_C: Int64s, budget: int) -> list[Int64s]:
    """Return each packed micro-batch's chains, by best fit decreasing bin packing.

    The longest units go first, each into the fullest bin with room for it.
    """
    chains_U = members(units_C)
    lengths_U = np.zeros(len(chains_U), np.int64)
    np.add.at(lengths_U, units_C, lengths_C)
    bins: list[list[Int64s]] = []
    # Each bin's remaining room and its number, least room first.
    free: list[tuple[int, int]] = []
    for unit in np.argsort(-lengths_U, kind="stable").tolist():
        length = int(lengths_U[unit])
        place = bisect_left(free, (length, -1))
        if place < len(free):
            left, number = free.pop(place)
        else:
            left = max(budget, length)
            number = len(bins)
            bins.append([])
        bins[number].append(chains_U[unit])
        if left > length:
            insort(free, (left - length, number))
    return [np.concatenate(chosen) for chosen in bins]


def members(units_C: Int64s) -> list[Int64s]:
    """Return each unit's chains, in their order."""
    order = np.argsort(units_C, kind="stable")
    return np.split(order, np.cumsum(np.bincount(units_C))[:-1])


def united(sets: Sequence[NDArray[np.integer]]) -> Int64s:
    """Return a number for each set of names, equal for sets that share a name.

    Sets may also share a name through other sets.
    """
    first: dict[int, int] = {}
    joined = list(range(len(sets)))
    for place, names in enumerate(sets):
        for name in names.tolist():
            old = root(joined, place)
            new = root(joined, first.setdefault(name, place))
            joined[max(old, new)] = min(old, new)
    return _dense([root(joined, place) for place in range(len(sets))])


def root(joined: Sequence[int], place: int) -> int:
    """Return the first place that `place` is joined with; `joined` names an earlier one."""
    while joined[place] != place:
        place = joined[place]
    return place


def _joined_by_turns(chains: Sequence[Chain]) -> Int64s:
    """Return equal numbers for chains that share a turn, directly or through other chains."""
    first_turns_C = membership(chains).first_turns_C.tolist()
    return united(
        [
            np.unique(chain.tokens.turns_T[chain.tokens.trained_T]) + first
            for chain, first in zip(chains, first_turns_C, strict=True)
        ]
    )


def _dense(names: Sequence[int]) -> Int64s:
    """Return numbers from 0 in the order in which the names first appear."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)
