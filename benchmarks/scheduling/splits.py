"""Node splits: each pipeline at the same split and at its own best one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from benchmarks.scheduling.cells import (
    COLOCATED,
    MULTIPLEXED,
    PIPELINES,
    Cell,
    Load,
    Measured,
    Pipeline,
)

_FINEST = 32
"""The best split may be off by one in so many nodes, at least by one node."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A pipeline under a load: half the nodes train, and as many as are best for it."""

    same: Measured
    best: Measured


def compared(
    load: Load, nodes: int, steps: int, measure: Callable[[Cell], Measured]
) -> Iterator[Compared]:
    """Yield the pipelines under a load, in their order."""
    for pipeline in PIPELINES:
        cells = _Cells(pipeline, load, nodes, steps, measure)
        if pipeline is COLOCATED:
            yield Compared(cells.at(nodes), cells.at(nodes))
            continue
        most = nodes if pipeline is MULTIPLEXED else nodes - 1
        best = shortest(cells.step_s, nodes, most)
        yield Compared(cells.at(nodes // 2), cells.at(best))


def scaled(
    pairs: Iterable[Compared],
    nodes: int,
    steps: int,
    thinner: int,
    measure: Callable[[Cell], Measured],
) -> Iterator[Compared]:
    """Yield the same pipelines on more nodes, each at the splits that it had on fewer.

    A step has `thinner` times fewer sessions for each node, and an engine as many times fewer rows.
    """
    for pair in pairs:
        load = pair.same.cell.load
        load = replace(load, groups=load.groups // thinner, rows=load.rows // thinner)
        by_train: dict[int, Measured] = {}
        for cell in (pair.same.cell, pair.best.cell):
            train = cell.train * nodes // cell.nodes
            if train not in by_train:
                by_train[train] = measure(Cell(cell.pipeline, load, nodes, train, steps))
        first, *other = by_train.values()
        yield Compared(first, other[0] if other else first)


def shortest(step_s: Callable[[int], float], nodes: int, most: int) -> int:
    """Return the node count, 1 to `most`, with a shorter step than the counts near it.

    Begins with half the nodes and looks on both sides, a quarter of all nodes away, then half as
    far whenever neither side is better.
    """
    best, far = nodes // 2, max(1, nodes // 4)
    while far >= max(1, nodes // _FINEST):
        sides = [train for train in (best - far, best + far) if 1 <= train <= most]
        nearest = min([best, *sides], key=lambda train: (step_s(train), train))
        if nearest == best:
            far //= 2
        best = nearest
    return best


class _Cells:
    """The measured cells for one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        load: Load,
        nodes: int,
        steps: int,
        measure: Callable[[Cell], Measured],
    ) -> None:
        self._of = (pipeline, load, nodes)
        self._steps = steps
        self._measure = measure
        self._known: dict[int, Measured] = {}

    def at(self, train: int) -> Measured:
        """Return the figures if `train` nodes train."""
        if train not in self._known:
            self._known[train] = self._measure(Cell(*self._of, train, self._steps))
        return self._known[train]

    def step_s(self, train: int) -> float:
        """Return a step's time if `train` nodes train."""
        return self.at(train).step_s
