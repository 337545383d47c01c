"""The tables make an absent owner, a growing lag and a missing permission visible."""

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from seamlessflow.infra.kafka.topics.lag import GroupState, PartitionLag
from seamlessflow.inspection.topics.state import (
    READINGS,
    LagGrowth,
    TopicState,
)
from seamlessflow.inspection.topics.view import group_tables, topic_table


def shown(view: RenderableType) -> list[list[str]]:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(view)
    return [line.replace("│", " ").split() for line in captured.get().splitlines()]


def test_a_partition_without_owner_and_one_with_growing_lag_stand_out() -> None:
    growth = LagGrowth()
    for lag in range(1, READINGS + 1):
        partitions = [PartitionLag(0, 0), PartitionLag(1, lag, "m", "10.0.0.1")]
        group = GroupState("g", "requests", "stable", 1, partitions)
        growth.apply([group])
    lines = shown(group_tables([group], growth))
    assert ["0", "no", "owner", "0"] in lines
    assert ["1", "m", "10.0.0.1", str(READINGS), "growing:", f"+{READINGS - 1}"] in lines
    assert ["g", "reads", "requests:", "1", "member,", "stable,", "lag", str(READINGS)] in lines


def test_a_topic_that_waits_without_a_reader_stands_out_with_its_time() -> None:
    group = GroupState("g", "tasks", "empty", 0, [PartitionLag(0, 4)], waits_since_ms=10**12)

    line = next(line for line in shown(group_tables([group], LagGrowth())) if "reads" in line)
    assert "lag 4, unread since 2001-09-" in " ".join(line)


def test_a_group_that_may_not_be_seen_says_so_in_both_tables() -> None:
    group = GroupState("g", "tasks", refused="Group authorization failed")
    [headline, *_] = shown(group_tables([group], LagGrowth()))
    said = "not permitted to describe the group: Group authorization failed"
    assert headline == ["g", "reads", "tasks:", *said.split()]
    assert ["tasks", "1", "5", "g", "not", "permitted"] in shown(
        topic_table([TopicState("tasks", 1, 5, 0, group)])
    )


def test_records_are_a_column_only_if_they_were_counted() -> None:
    state = TopicState("control", 1, 5_000, 0)
    assert ["control", "1", "5,000"] in shown(topic_table([state]))
    assert ["control", "1", "5,000", "4,000"] in shown(
        topic_table([replace(state, records=4_000, counted=True)])
    )
    assert ["control", "1", "5,000", ">", "70"] in shown(
        topic_table([replace(state, records=70, counted=False)])
    )
