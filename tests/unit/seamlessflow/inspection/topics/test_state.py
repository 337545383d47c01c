"""Owner and lag of each partition follow from coordinator and offsets; a lag may grow."""

import pytest

from seamlessflow.infra.kafka.topics.groups import FoundGroup, GroupMember
from seamlessflow.infra.kafka.topics.lag import GroupState, PartitionLag, behind, group_state
from seamlessflow.inspection.topics.state import (
    READINGS,
    LagGrowth,
    is_growing,
    joined,
    ranges,
)

PLACES = [("tasks", number) for number in range(4)]


def member(identity: str, name: str, *partitions: int) -> GroupMember:
    return GroupMember(identity, name, "h", frozenset(PLACES[number] for number in partitions))


def owners(*members: GroupMember) -> list[str]:
    group = FoundGroup("stable", members)
    state = group_state("g", "tasks", group, dict.fromkeys(PLACES, 0))
    return [place.owner for place in state.partitions]


def test_lag_counts_what_is_kept_behind_the_commit() -> None:
    kept = dict(zip(PLACES, [range(9), range(9), range(5, 9), range(5, 9)], strict=True))
    committed = dict(zip(PLACES, [9, 4, 2, -1001], strict=True))
    assert list(behind(kept, committed).values()) == [0, 5, 4, 4]


def test_each_partition_has_its_owner_or_none() -> None:
    assert owners(member("1", "a", 0, 2), member("2", "b", 3)) == ["a", "", "a", "b"]


def test_members_of_one_name_are_told_apart_by_their_ids() -> None:
    assert owners(member("1", "a", 0, 1), member("2", "a", 2, 3)) == ["a 1", "a 1", "a 2", "a 2"]


def test_partitions_without_lag_are_one_row_for_each_owner() -> None:
    rows = joined(
        [
            PartitionLag(0, 0, "a"),
            PartitionLag(1, 5, "a"),
            PartitionLag(2, 0, "a"),
            PartitionLag(3, 0),
            PartitionLag(4, 7),
        ]
    )
    assert [(numbers, place.owner, place.lag) for numbers, place in rows] == [
        ([3], "", 0),
        ([4], "", 7),
        ([0, 2], "a", 0),
        ([1], "a", 5),
    ]


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([4], "4"), ([0, 1, 2, 7], "0-2,7"), ([1, 3, 4], "1,3-4")]
)
def test_numbers_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


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
    assert growth.increase("g", 3) == READINGS - 1
    assert growth.increase("g", 4) == 0
