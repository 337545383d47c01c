"""A critic's outputs: the values that each computes, and what it learns at these places.

An output has values before trained tokens, and may have others behind them. Each value has a
target and a weight in the loss of its output, which are columns of their own. Pure; called by both
phases of a step, and by the critics of the back ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seamlessflow.trainer.data.chains import Column

ValueLoss = Literal["clipped", "cross_entropy", "huber"]


class Lesson(NamedTuple):
    """A value, and the columns of what it learns."""

    value: Column
    target: Column
    weight: Column


@dataclass(frozen=True, slots=True)
class CriticOutput:
    """One critic's output; its lessons' weights sum to 1 over an update."""

    loss: ValueLoss
    before: Lesson
    """Its value before the token, at the place that predicts it."""
    behind: Lesson | None = None
    """Its value behind the token, where the next would be predicted; None: it has none."""

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
"""The critic's outputs, by the estimator of advantages that needs it."""


def value_columns(outputs: Sequence[CriticOutput]) -> tuple[Column, ...]:
    """Return the columns that a critic with these outputs computes."""
    return tuple(lesson.value for output in outputs for lesson in output.lessons)


def lesson_columns(outputs: Sequence[CriticOutput]) -> frozenset[Column]:
    """Return the columns of what these outputs learn, and how much each place counts."""
    lessons = [lesson for output in outputs for lesson in output.lessons]
    return frozenset(name for lesson in lessons for name in (lesson.target, lesson.weight))


def needs_behind(outputs: Sequence[CriticOutput]) -> bool:
    """Return whether a value behind a token is among them."""
    return any(output.behind is not None for output in outputs)
