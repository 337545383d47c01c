"""Mixture of task sources: each draw's source, by the sources' weights. Pure.

A source with the share p takes draw n if floor((n + 1) p) > floor(n p). So its draws are as far
apart as possible. The draws that it leaves get new numbers for the next source, which takes its
share of them. The last source takes all that are left. So a draw's source and place follow only
from its number and the weights. Time and memory are proportional to the source count. A scheduler
that takes over goes on where the last one stopped. Shares are exact in the long run. With k
sources, each has n times its share of the first n draws, to within 2 + ln k draws.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import NamedTuple

from seamlessflow.scheduler.tasks.source import SamplingRule, TaskRow, TaskSource

Weighted = Sequence[tuple[TaskSource, Fraction]]


class Part(NamedTuple):
    """A source in a mixture."""

    source: TaskSource
    share: Fraction
    """Its part of all draws."""
    share_left: Fraction
    """Its part of the draws that the sources before it leave; 1 for the last."""

    def figures(self, number: int, source_draw: int) -> Mapping[str, float]:
        """Return the figures for a draw from it, by its number in all draws and in the source."""
        return {"draw": number, "source_draw": source_draw, "share": float(self.share)}


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several sources, each with a share of the draws. No two have a task with the same id."""

    parts: Sequence[Part]

    def draw(self, number: int) -> TaskRow:
        """Return the task for the `number`-th draw."""
        part, source_draw = self.part_of(number)
        return part.source.draw(source_draw)

    def rule(self, number: int) -> SamplingRule:
        """Return the rule for the `number`-th draw; `source_draw` is its number in its source."""
        part, source_draw = self.part_of(number)
        rule = part.source.rule(source_draw)
        figures = part.figures(number, source_draw)
        return replace(rule, figures={**rule.figures, **figures})

    def find(self, task_id: str) -> TaskRow | None:
        """Return the task with an id, or None if no source has it."""
        rows = (part.source.find(task_id) for part in self.parts)
        return next((row for row in rows if row is not None), None)

    def part_of(self, number: int) -> tuple[Part, int]:
        """Return a draw's source, and how many earlier draws came from that source."""
        for part in self.parts:
            before = floor(number * part.share_left)
            if floor((number + 1) * part.share_left) > before:
                return part, before
            number -= before
        raise ValueError("no source has a weight")


Drawing = TaskSource | Mixture
"""Tasks by draw number: one source, or several."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The same sources with different weights, from some trained steps on."""

    stages: Sequence[tuple[int, Drawing]]
    """Each stage's first trained step and its tasks; the first stage begins at step 0."""

    def at(self, step: int) -> tuple[int, Drawing]:
        """Return the stage's number at a trained step, and its tasks."""
        begun = [number for number, (first, _) in enumerate(self.stages) if first <= step]
        return begun[-1], self.stages[begun[-1]][1]

    def find(self, task_id: str) -> TaskRow | None:
        """Return the task with an id, or None if no source has it."""
        return self.stages[0][1].find(task_id)


Draws = Drawing | Stages
"""All tasks to train on."""


def sources(draws: Draws) -> Sequence[TaskSource]:
    """Return the sources of all tasks to train on."""
    first = draws.stages[0][1] if isinstance(draws, Stages) else draws
    return [first] if isinstance(first, TaskSource) else [part.source for part in first.parts]


@dataclass(frozen=True, slots=True)
class TaskSets:
    """A run's tasks."""

    training: Draws | None = None
    evaluations: Mapping[str, TaskSource] = field(default_factory=dict)
    """Evaluation tasks by split, in evaluation order."""


def mixed(weighted: Weighted) -> Drawing:
    """Return the sources as one, with draws in proportion to their weights.

    Raises `ValueError` without a weight above 0.
    """
    total = sum((weight for _, weight in weighted), Fraction(0))
    if total <= 0:
        raise ValueError("no source has a weight")
    if len(weighted) == 1:
        return weighted[0][0]
    parts = []
    left = total
    for source, weight in weighted:
        # After a source that has all draws, no share matters.
        parts.append(Part(source, weight / total, weight / left if left else Fraction(1)))
        left -= weight
    return Mixture(tuple(parts))


def with_forks(weighted: Weighted, forks: TaskSource, share: Fraction) -> Drawing:
    """Return forks in this share of the draws, and the sources in the rest."""
    total = sum((weight for _, weight in weighted), Fraction(0))
    return mixed(
        [(forks, share), *((source, weight / total * (1 - share)) for source, weight in weighted)]
    )
