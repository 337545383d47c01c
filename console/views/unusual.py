"""A step's metrics that stand out from the steps before it. Pure.

A metric stands out if it lies far from its median over these steps, measured in their usual spread.
A single step hardly moves the median and the spread, so one bad step does not hide the next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from statistics import median

from seamlessflow.trainer.metrics.names import meaning_of
from seamlessflow.trainer.metrics.unlearned import StepMetrics

BEFORE = 30
"""A step is compared with so many steps before it."""
MOST = 8
_FEWEST = 8
"""Fewest earlier values that a metric is compared with."""
_FAR = 4.0
"""Distance from the median, in spreads, from which a metric stands out."""
_NORMAL = 1.4826
"""Standard deviation of normal values, divided by their median absolute deviation."""
_LEAST_SPREAD = 0.05
"""Least spread, as a share of the median. Without it, a nearly constant metric soon stands out."""
_COUNTED = ("masked/", "filtered/", "dropped/", "ended_at/")
"""Metric families that a step only has above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualFigure:
    """A step's metric that stands out."""

    name: str
    value: float
    usual: float
    """Its median over the steps before."""
    least: float
    most: float
    """Its range over these steps."""
    meaning: str


def unusual_figures(step: StepMetrics, before: Sequence[StepMetrics]) -> list[UnusualFigure]:
    """Return what stands out in a step, the farthest first; nothing without enough steps before.

    Only one metric is returned from a family, and only one of several with equal figures. `before`:
    the earlier steps' metrics, in step order.
    """
    shown: list[UnusualFigure] = []
    said: set[str | tuple[float, float]] = set()
    for _, figure in sorted(_far(step, before[-BEFORE:]), key=_plainest_of_farthest):
        family = figure.name.partition("/")[0]
        values = (figure.value, figure.usual)
        if said.isdisjoint((family, values)):
            shown.append(figure)
            said |= {family, values}
    return shown[:MOST]


def _far(step: StepMetrics, before: Sequence[StepMetrics]) -> Iterator[tuple[float, UnusualFigure]]:
    """Yield the metrics that stand out, each with its distance in spreads."""
    for name, value in step.items():
        values = _values(name, before)
        if len(values) < _FEWEST or min(values) <= value <= max(values):
            continue
        usual = median(values)
        deviation = median(abs(other - usual) for other in values)
        spread = max(_NORMAL * deviation, _LEAST_SPREAD * abs(usual))
        distance = abs(value - usual) / spread if spread else inf
        if distance >= _FAR:
            yield (
                distance,
                UnusualFigure(
                    name=name,
                    value=value,
                    usual=usual,
                    least=min(values),
                    most=max(values),
                    meaning=meaning_of(name),
                ),
            )


def _plainest_of_farthest(far: tuple[float, UnusualFigure]) -> tuple[float, bool, str]:
    distance, figure = far
    return -distance, "/" in figure.name, figure.name


def _values(name: str, before: Sequence[StepMetrics]) -> list[float]:
    """Return a metric's finite values in these steps."""
    missing = 0.0 if name.startswith(_COUNTED) else nan
    return [value for step in before if isfinite(value := step.get(name, missing))]
