"""Charts keep what people look for: the range, the dips, the place that is clicked."""

import random
from itertools import pairwise

import pytest

from seamlessflow.console.views.chart import (
    HEIGHT,
    MOST_POINTS,
    WIDTH,
    areas_of,
    frame_around,
    nice,
    smoothed,
    thinned,
)


def test_all_points_stand_inside_and_larger_ones_higher() -> None:
    points = [(1, -2.0), (2, 5.0), (3, 1.0)]
    frame = frame_around([points], 1, 3)
    places = [(frame.x(step), frame.y(value)) for step, value in points]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert places[1][1] < places[2][1] < places[0][1]


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-1e-9, 1e-9], [1e12, 2e12]])
def test_any_values_have_a_frame_with_ticks(values: list[float]) -> None:
    points = list(enumerate(values, 1))
    frame = frame_around([points], 1, len(points))
    assert frame.low < min(values) <= max(values) < frame.high
    assert all(frame.low <= tick <= frame.high for tick in frame.values)
    assert list(frame.steps)


def test_a_dip_of_one_step_among_thousands_stays() -> None:
    rng = random.Random(7)
    points = [(step, 1 + rng.random()) for step in range(1, 20_001)]
    points[12_345] = (12_346, -5.0)
    few = thinned(points)
    assert len(few) <= MOST_POINTS
    assert (12_346, -5.0) in few
    assert few == sorted(few)
    assert max(points, key=lambda point: point[1]) in few


def test_few_points_stay_as_they_are() -> None:
    points = [(1, 1.0), (2, 2.0)]
    assert thinned(points) == points


def test_an_average_of_equal_values_is_that_value() -> None:
    average = smoothed([(1, 2.0), (2, 2.0), (3, 2.0)], 0.9)
    assert [value for _, value in average] == pytest.approx([2.0] * 3)
    assert [step for step, _ in average] == [1, 2, 3]


def test_an_average_by_hand() -> None:
    # weights of 1, 2: 0.25, 0.5, divided by their sum 0.75
    assert smoothed([(1, 1.0), (2, 4.0)], 0.5)[1][1] == pytest.approx((0.25 + 2.0) / 0.75)


def test_areas_cover_the_chart_without_a_gap() -> None:
    points = [(step, float(step)) for step in (1, 2, 5, 9)]
    areas = areas_of(frame_around([points], 1, 9), points)
    assert areas[0].x == 0
    assert areas[-1].x + areas[-1].width == pytest.approx(WIDTH, abs=0.2)
    for left, right in pairwise(areas):
        assert left.x + left.width == pytest.approx(right.x, abs=0.2)
    assert all(area.x <= area.dot_x <= area.x + area.width for area in areas)


@pytest.mark.parametrize("span, expected", [(0.3, 0.5), (1, 1), (11, 20), (0.007, 0.01), (0, 1)])
def test_ticks_stand_at_round_numbers(span: float, expected: float) -> None:
    assert nice(span) == pytest.approx(expected)
