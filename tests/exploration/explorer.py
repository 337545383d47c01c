"""The exploration: breadth first over all worlds that can be reached, each known by its hash.

Every world is checked. Afterwards the graph is searched backwards from the goals over transitions
without faults: from a world that is not found so no continuation leads on.
"""

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.exploration.bounds import Bounds
from tests.exploration.changes.transitions import settle, transitions
from tests.exploration.opening import opening
from tests.exploration.properties import at_goal, check
from tests.exploration.world import Broken, World


@dataclass(slots=True)
class Exploration:
    """The graph of worlds: for each its first predecessor, and all transitions without faults."""

    bounds: Bounds
    numbers: dict[int, int] = field(default_factory=dict)
    """Place of each world in the order of discovery, by hash."""
    parents: "array[int]" = field(default_factory=lambda: array("l"))
    names: list[str] = field(default_factory=list)
    """Name of the transition by which each world was found."""
    sources: "array[int]" = field(default_factory=lambda: array("l"))
    targets: "array[int]" = field(default_factory=lambda: array("l"))
    goals: list[int] = field(default_factory=list)
    transitions: int = 0
    open: int = 0
    """Worlds whose transitions were not explored."""

    @property
    def states(self) -> int:
        """Number of worlds."""
        return len(self.parents)

    def trace(self, place: int) -> list[str]:
        """Return the names of the transitions that lead to a world."""
        names = []
        while place > 0:
            names.append(self.names[place])
            place = self.parents[place]
        return names[::-1]

    def stuck(self) -> list[int]:
        """Return the worlds from which no goal is reached without a fault."""
        before: dict[int, list[int]] = {}
        for source, target in zip(self.sources, self.targets, strict=True):
            before.setdefault(target, []).append(source)
        # What follows an unexplored world is unknown, so that it counts as one that leads on.
        reached = bytearray(self.states)
        waiting = [*self.goals, *range(self.states - self.open, self.states)]
        while waiting:
            place = waiting.pop()
            if not reached[place]:
                reached[place] = 1
                waiting.extend(before.pop(place, ()))
        return [place for place in range(self.states) if not reached[place]]


class Counterexample(AssertionError):
    """A sequence of events after which a property does not hold."""

    def __init__(self, reason: str, names: list[str]) -> None:
        lines = "\n".join(f"{place:4} {name}" for place, name in enumerate(names, 1))
        super().__init__(f"{reason}, after\n{lines}")


def explore(
    bounds: Bounds,
    most_states: int = 10**9,
    limit_s: float = 10**9,
    report: Callable[[Exploration], None] = lambda _: None,
    first: World | None = None,
) -> Exploration:
    """Return the graph of all worlds within the bounds. Raise `Counterexample`."""
    graph, first = Exploration(bounds), first or opening(bounds)
    _find(graph, first, 0, "")
    waiting, began, reported = deque([first]), time.monotonic(), time.monotonic()
    done = 0
    while waiting and graph.states < most_states and time.monotonic() - began < limit_s:
        world = waiting.popleft()
        for after in _expanded(graph, world, done):
            waiting.append(after)
        done += 1
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            report(graph)
    graph.open = len(waiting)
    if stuck := graph.stuck():
        raise Counterexample(f"{len(stuck)} states lead nowhere", graph.trace(stuck[0]))
    return graph


def _expanded(graph: Exploration, world: World, place: int) -> Iterator[World]:
    """Yield the new worlds that follow a world."""
    if at_goal(world):
        graph.goals.append(place)
    for name, change in transitions(world):
        after = world.copied()
        try:
            change(after)
            settle(after)
            check(after)
        except Broken as broken:
            raise Counterexample(str(broken), [*graph.trace(place), name]) from broken
        states_before = graph.states
        number = _find(graph, after, place, name)
        graph.transitions += 1
        if not name.startswith("fault"):
            graph.sources.append(place)
            graph.targets.append(number)
        if number == states_before:
            yield after


def _find(graph: Exploration, world: World, parent: int, name: str) -> int:
    number = graph.numbers.setdefault(world.key(), graph.states)
    if number == graph.states:
        graph.parents.append(parent)
        graph.names.append(name)
    return number
