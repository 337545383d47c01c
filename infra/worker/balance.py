"""A worker's share of the running turns. Pure.

The trajectory manager and the simulator's router apply it when a worker begins to serve.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from heapq import heapify, heapreplace
from typing import TypeVar

from seamlessflow.infra.worker.tags import wishes_of

T = TypeVar("T")
KEEPS = 4
"""Turns that no worker gives up. A pass over fewer rows is hardly shorter, and a moved turn's KV is
computed again.
"""


def surplus(loads: Mapping[str, int], fixed: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return how many surplus turns each worker has; `loads` says how many turns each has.

    `fixed`: how many of them cannot move. If the surplus goes to the least loaded workers, loads
    then differ by one at most, except for workers whose fixed turns are more than that.
    """
    least = fixed or dict.fromkeys(loads, 0)
    sharing = sorted(loads, key=lambda name: (-least[name], -loads[name], name))
    total = sum(loads.values())
    kept = dict[str, int]()
    while sharing and least[sharing[0]] * len(sharing) > total:
        name = sharing.pop(0)
        kept[name] = max(KEEPS, least[name])
        total -= least[name]
    level, more = divmod(total, len(sharing)) if sharing else (0, 0)
    sharing.sort(key=lambda name: (-loads[name], name))
    kept |= {name: max(KEEPS, level + (n < more)) for n, name in enumerate(sharing)}
    return {name: loads[name] - kept[name] for name in loads if loads[name] > kept[name]}


def given_up(
    turns: Mapping[str, Sequence[T]],
    tags: Mapping[str, frozenset[str]],
    wishes: Callable[[T], tuple[str, ...]],
) -> list[T]:
    """Return the turns that other workers should have: each worker's first ones.

    A turn may go to workers that have the tags it requires, and no fewer preferred tags than its
    own worker. Turns that the fewest workers may have are shared out first. Later ones can even out
    what these leave uneven.
    """
    as_good = cache(lambda worker, asked: _as_good(worker, asked, tags, turns))
    kinds: dict[frozenset[str], dict[str, list[T]]] = {}
    for worker, running in turns.items():
        for turn in running:
            able = as_good(worker, wishes(turn))
            kinds.setdefault(able, {}).setdefault(worker, []).append(turn)
    loads = {worker: len(running) for worker, running in turns.items()}
    return [
        turn for able in sorted(kinds, key=len) for turn in _shared_out(kinds[able], able, loads)
    ]


def _as_good(
    worker: str, asked: tuple[str, ...], tags: Mapping[str, frozenset[str]], among: Iterable[str]
) -> frozenset[str]:
    """Return the workers that meet a turn's wishes at least as well as its own worker."""
    wishes = wishes_of(asked)
    met = len(tags[worker] & wishes.prefers)
    able = (name for name in among if tags[name] >= wishes.requires)
    return frozenset(name for name in able if len(tags[name] & wishes.prefers) >= met)


def _shared_out(
    placed: Mapping[str, Sequence[T]], able: Iterable[str], loads: dict[str, int]
) -> list[T]:
    """Return the turns of one kind that move, and note in `loads` where they go."""
    of_able = {name: loads[name] for name in able}
    over = surplus(
        of_able, {name: load - len(placed.get(name, ())) for name, load in of_able.items()}
    )
    moved = [turn for worker, count in over.items() for turn in placed[worker][:count]]
    for worker, count in over.items():
        loads[worker] -= count
    free = [(loads[name], name) for name in of_able]
    heapify(free)
    for _ in moved:
        load, name = free[0]
        loads[name] = load + 1
        heapreplace(free, (load + 1, name))
    return moved
