"""Charts as coordinates, which a template writes as SVG. Pure.

A chart with many points keeps each part's lowest and highest point, so a dip of one step stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH = 360.0
HEIGHT = 150.0
_SIDE = 6.0
_TOP = 12.0
_BOTTOM = 16.0
MOST_POINTS = 300
_TICKS = 4

Point = tuple[int, float]
"""A step's number as people see it, and a value."""


@dataclass(frozen=True, slots=True)
class ChartFrame:
    """The step range and the value range that a chart shows."""

    first: int
    last: int
    low: float
    high: float

    def x(self, step: float) -> float:
        """Return a step's x coordinate."""
        share = (step - self.first) / max(1, self.last - self.first)
        return round(_SIDE + share * (WIDTH - 2 * _SIDE), 1)

    def y(self, value: float) -> float:
        """Return a value's y coordinate; a value beyond the range stands at the edge."""
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    @property
    def steps(self) -> Sequence[int]:
        """Steps that are written below the chart."""
        apart = int(nice((self.last - self.first) / _TICKS, whole=True))
        return range(-(-self.first // apart) * apart, self.last + 1, apart)

    @property
    def values(self) -> Sequence[float]:
        """Values that are written beside the chart."""
        apart = nice((self.high - self.low) / _TICKS)
        begin = math.ceil(self.low / apart)
        values = (round((begin + number) * apart, 12) for number in range(_TICKS + 2))
        return [value for value in values if self.y(value) > _TOP]


@dataclass(frozen=True, slots=True)
class ChartArea:
    """A point, and the part of the chart that belongs to it: from `x` on, `width` wide."""

    x: float
    width: float
    dot_x: float
    dot_y: float
    step: int
    value: float


def frame_around(series: Sequence[Sequence[Point]], first: int, last: int) -> ChartFrame:
    """Return a frame that shows all points in all series."""
    values = [value for points in series for _, value in points if math.isfinite(value)]
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    room = (high - low) * 0.05 or max(abs(high) * 0.05, 0.01)
    return ChartFrame(first, last, low - room, high + room)


def nice(span: float, whole: bool = False) -> float:
    """Return the first of 1, 2, 5 times a power of ten that reaches a span; `whole`: at least 1."""
    if span <= 0 or (whole and span < 1):
        return 1.0
    power = 10.0 ** math.floor(math.log10(span))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= span * 0.9999)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """Return at most so many points: the first lowest and first highest from each part."""
    if len(points) <= most:
        return points
    parts = most // 2
    kept: set[int] = set()
    for part in range(parts):
        numbers = range(part * len(points) // parts, (part + 1) * len(points) // parts)
        kept.add(min(numbers, key=lambda number: points[number][1]))
        kept.add(max(numbers, key=lambda number: points[number][1]))
    return [points[number] for number in sorted(kept)]


def smoothed(points: Sequence[Point], weight: float) -> Sequence[Point]:
    """Return the exponential moving average, in which the previous average has this weight.

    The bias from its beginning at 0 is divided out, as in Adam (arXiv 1412.6980, section 3).
    """
    average = 0.0
    rest = 1.0
    smooth: list[Point] = []
    for step, value in points:
        average = weight * average + (1 - weight) * value
        rest *= weight
        smooth.append((step, average / (1 - rest)))
    return smooth


def path_of(frame: ChartFrame, points: Sequence[Point]) -> str:
    """Return the points of an SVG polyline."""
    return " ".join(f"{frame.x(step):g},{frame.y(value):g}" for step, value in points)


def areas_of(frame: ChartFrame, points: Sequence[Point]) -> Sequence[ChartArea]:
    """Return each point's part of the chart, which reaches halfway to its neighbours."""
    places = [frame.x(step) for step, _ in points]
    middles = [(before + after) / 2 for before, after in pairwise(places)]
    edges = [0.0, *middles, WIDTH]
    return [
        ChartArea(round(left, 1), round(right - left, 1), place, frame.y(value), step, value)
        for left, right, place, (step, value) in zip(edges, edges[1:], places, points, strict=False)
    ]
