"""A critic's outputs: the values that each computes, and what it learns at these places.

An output has values before trained tokens, and may have others behind them. Each value has a
target, and a weight in its output's loss; both are separate columns. Pure; called by both phases
of a step, and by the back ends' critics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seamlessflow.trainer.data.chains import Column

ValueLoss = Literal["clipped", "cross_entropy", "huber"]


class Lesson(NamedTuple):
    """A value's column, and the columns with its target and weight."""

    value: Column
    target: Column
    weight: Column


@dataclass(frozen=True, slots=True)
class CriticOutput:
    """One output of a critic; its lessons' weights sum to 1 over an update."""

    loss: ValueLoss
    before: Lesson
    """Its value before the token, at the place that predicts it."""
    behind: Lesson | None = None
    """Its value behind the token, where the next token would be predicted; None: it has none."""

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """Return what it learns before and behind tokens."""
        return (self.before,) if self.behind is None else (self.before, self.behind)


RETURNS = CriticOutput("clipped", Lesson(Column.VALUE, Column.TARGET, Column.TARGET_WEIGHT))
VIABILITY = CriticOutput(
    "cross_entropy",
    Lesson(Column.VIABILITY, Column.VIABILITY_TARGET, Column.VIABILITY_WEIGHT),
    Lesson(Column.END_VIABILITY, Column.END_VIABILITY_TARGET, Column.END_VIABILITY_WEIGHT),
)
EFFICIENCY = CriticOutput(
    "huber",
    Lesson(Column.EFFICIENCY, Column.EFFICIENCY_TARGET, Column.EFFICIENCY_WEIGHT),
    Lesson(Column.END_EFFICIENCY, Column.END_EFFICIENCY_TARGET, Column.END_EFFICIENCY_WEIGHT),
)
EVERY_OUTPUT = (RETURNS, VIABILITY, EFFICIENCY)
OUTPUTS: Mapping[str, tuple[CriticOutput, ...]] = {
    "gae": (RETURNS,),
    "turn_gae": (RETURNS,),
    "habc": (VIABILITY, EFFICIENCY),
}
"""The critic's outputs, by the advantage estimator that needs them."""


def value_columns(outputs: Sequence[CriticOutput]) -> tuple[Column, ...]:
    """Return the columns that a critic with these outputs computes."""
    return tuple(lesson.value for output in outputs for lesson in output.lessons)


def lesson_columns(outputs: Sequence[CriticOutput]) -> frozenset[Column]:
    """Return the columns with these outputs' targets and weights."""
    lessons = [lesson for output in outputs for lesson in output.lessons]
    return frozenset(name for lesson in lessons for name in (lesson.target, lesson.weight))


def needs_behind(outputs: Sequence[CriticOutput]) -> bool:
    """Return whether one of these outputs has a value behind a token."""
    return any(output.behind is not None for output in outputs)
