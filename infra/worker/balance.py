"""The share of the running turns that a worker should have. Pure.

Applied when a worker begins to serve: by the trajectory manager, and by the simulator's router.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
KEEPS = 4
"""Turns that no worker gives up: a pass over fewer rows is hardly shorter, and a turn that moves
has its KV computed again."""


def surplus(loads: Mapping[str, int]) -> dict[str, int]:
    """Return how many turns each worker has too many, by the turns that each has.

    Without those turns, given to the least loaded workers, loads differ by one at most.
    """
    level, more = divmod(sum(loads.values()), len(loads)) if loads else (0, 0)
    busiest_first = sorted(loads, key=lambda name: (-loads[name], name))
    kept = {name: max(KEEPS, level + (n < more)) for n, name in enumerate(busiest_first)}
    return {name: loads[name] - kept[name] for name in loads if loads[name] > kept[name]}


def given_up(turns: Mapping[str, Sequence[T]]) -> list[T]:
    """Return the turns that others should have, of each worker's turns: the first ones of each."""
    over = surplus({worker: len(running) for worker, running in turns.items()})
    return [turn for worker, count in over.items() for turn in turns[worker][:count]]
