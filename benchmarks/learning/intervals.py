"""A method's figures over its seeds: metric, interval, and difference to a baseline. Pure.

Fixed before anything was measured. A curve's metric: the mean held-out reward over the last quarter
of its steps. Interval: 95 %, by Student's t over seeds. Methods share a seed's model, tasks and
draws, so their difference is taken seed by seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from benchmarks.learning.curves import Curve
from benchmarks.learning.loop import Point

LAST = 0.25
"""Share of the steps whose points count."""

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t quantiles at 0.975, for 1 degree of freedom and more."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with half its 95 % interval's width, which is not a number for one value."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.half) else f"{self.mean:.3f} ± {self.half:.3f}"


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """A row of the table."""

    method: str
    seeds: int
    reward: Estimate
    difference: Estimate | None
    """To the baseline, over the seeds that both have; None for the baseline and without any."""
    tokens: float
    """Tokens sampled for training, the mean over the seeds."""
    took_s: float


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and interval of at least one value."""
    if len(values) < 2:
        return Estimate(fmean(values), math.nan)
    t = _T_975[min(len(values) - 1, len(_T_975)) - 1]
    return Estimate(fmean(values), t * stdev(values) / math.sqrt(len(values)))


def metric(points: Sequence[Point], steps: int) -> float:
    """Return the mean held-out reward over the last quarter of the steps."""
    return fmean(point.reward for point in points if point.step > (1 - LAST) * steps)


def table(curves: Sequence[Curve], baseline: str) -> list[MethodFigures]:
    """Return each method's figures, in the order of their first curves."""
    by_method: dict[str, dict[int, Curve]] = {}
    for curve in curves:
        by_method.setdefault(curve.method, {})[curve.seed] = curve
    return [
        _figures(name, by_seed, by_method.get(baseline, {}), baseline)
        for name, by_seed in by_method.items()
    ]


def _figures(
    name: str, by_seed: Mapping[int, Curve], base: Mapping[int, Curve], baseline: str
) -> MethodFigures:
    metrics = {seed: metric(curve.points, curve.steps) for seed, curve in by_seed.items()}
    both = sorted(by_seed.keys() & base.keys()) if name != baseline else []
    differences = [metrics[seed] - metric(base[seed].points, base[seed].steps) for seed in both]
    return MethodFigures(
        method=name,
        seeds=len(by_seed),
        reward=estimate(list(metrics.values())),
        difference=estimate(differences) if differences else None,
        tokens=fmean(curve.points[-1].tokens for curve in by_seed.values()),
        took_s=fmean(curve.took_s for curve in by_seed.values()),
    )
