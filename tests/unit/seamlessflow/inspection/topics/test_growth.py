"""A lag grows if it never fell over some readings."""

import pytest

from seamlessflow.inspection.topics.growth import LagGrowth, is_growing
from seamlessflow.inspection.topics.state import GroupState, PartitionLag


@pytest.mark.parametrize(
    ("lags", "growing"),
    [
        ((1, 2, 3), True),
        ((1, 1, 3, 3), True),
        ((1, 2), False),
        ((3, 3, 3), False),
        ((1, 9, 2, 4), False),
        ((4, 2, 1), False),
    ],
)
def test_a_lag_that_only_rises_is_growing(lags: tuple[int, ...], growing: bool) -> None:
    assert is_growing(lags) is growing


def test_only_the_last_readings_count() -> None:
    growth = LagGrowth()
    for lag in (9, 1, 2, 3, 4, 5):
        growth.apply([GroupState("g", "tasks", partitions=[PartitionLag(3, lag)])])
    assert growth.of("g", 3) == 4
    assert growth.of("g", 4) == 0
