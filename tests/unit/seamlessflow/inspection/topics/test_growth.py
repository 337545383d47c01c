"""A lag grows if it rose over some readings and never fell."""

import pytest

from seamlessflow.inspection.topics.growth import READINGS, LagGrowth, is_growing
from seamlessflow.inspection.topics.state import GroupState, PartitionLag


@pytest.mark.parametrize(
    ("lags", "growing"),
    [
        (tuple(range(10)), True),
        ((1, 1, 1, 1, 1, 3, 3, 3, 3, 4), True),
        (tuple(range(9)), False),
        ((3,) * 10, False),
        ((0, 0, 0, 0, 8, 8, 8, 8, 8, 8), False),
        ((1, 2, 3, 4, 5, 6, 7, 8, 0, 9), False),
    ],
)
def test_a_lag_that_rises_and_never_falls_is_growing(lags: tuple[int, ...], growing: bool) -> None:
    assert is_growing(lags) is growing


def test_only_the_last_readings_count() -> None:
    growth = LagGrowth()
    for lag in (99, *range(READINGS)):
        growth.apply([GroupState("g", "tasks", partitions=[PartitionLag(3, lag)])])
    assert growth.of("g", 3) == READINGS - 1
    assert growth.of("g", 4) == 0
