"""State of the topics on a cluster: their records, and the lag of the Kafka consumer groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from consumers.trajectories.settings import ManagerSection
from infra.kafka.client import Partition
from infra.kafka.reader import Reader
from infra.kafka.topics import partition_counts
from infra.settings import KafkaSettings
from producers.agents.settings import AgentsSection
from schemas.topics import REQUESTS, TASKS, TOPICS

GROUPS: Mapping[str, str] = {
    REQUESTS.name: ManagerSection().group,
    TASKS.name: AgentsSection().group,
}
"""Kafka consumer groups that commit offsets, by topic; all other readers keep their own place."""


@dataclass(frozen=True)
class TopicState:
    """State of one topic; `lag` counts records behind the committed offsets of `group`."""

    name: str
    partitions: int
    records: int
    dead_letters: int
    group: str = ""
    lag: int | None = None


def differences(settings: KafkaSettings) -> list[str]:
    """Return a line for each topic that is missing or has the wrong number of partitions.

    Raises `KafkaUnavailable`.
    """
    there = partition_counts(settings)
    wanted = {
        settings.topic_prefix + name: topic.partitions
        for topic in TOPICS.values()
        for name in (topic.name, topic.dead_letters)
    }
    return [
        f"{name}: missing"
        if name not in there
        else f"{name}: {there[name]} partitions, not {count}"
        for name, count in wanted.items()
        if there.get(name) != count
    ]


def states(settings: KafkaSettings) -> list[TopicState]:
    """Return the state of every topic of the contract that exists. Raises `KafkaUnavailable`."""
    there = partition_counts(settings)
    names = [name for name in TOPICS if settings.topic_prefix + name in there]
    wanted = [name for topic in names for name in (topic, TOPICS[topic].dead_letters)]
    places = [
        (name, number)
        for name in wanted
        for number in range(there.get(settings.topic_prefix + name, 0))
    ]
    reader = Reader(settings, "topics")
    try:
        ends = reader.ends(places)
    finally:
        reader.close()
    return [_state(settings, name, ends) for name in names]


def table(found: list[TopicState]) -> Table:
    """Return the states as a table for the terminal."""
    shown = Table("topic", "partitions", "records", "dead letters", "read by", "lag")
    for column in (1, 2, 3, 5):
        shown.columns[column].justify = "right"
    for state in found:
        lag = "" if state.lag is None else f"{state.lag:,}"
        dead = f"{state.dead_letters:,}" if state.dead_letters else ""
        shown.add_row(
            state.name, str(state.partitions), f"{state.records:,}", dead, state.group, lag
        )
    return shown


def _state(settings: KafkaSettings, name: str, ends: Mapping[Partition, int]) -> TopicState:
    own = {place: end for place, end in ends.items() if place[0] == name}
    dead = sum(end for place, end in ends.items() if place[0] == TOPICS[name].dead_letters)
    group = GROUPS.get(name, "")
    lag = _lag(settings, group, own) if group else None
    return TopicState(name, len(own), sum(own.values()), dead, group, lag)


def _lag(settings: KafkaSettings, group: str, ends: Mapping[Partition, int]) -> int:
    reader = Reader(settings, "topics", group=group)
    try:
        committed = reader.committed(list(ends))
    finally:
        reader.close()
    # A partition without a commit has a negative offset: its whole content is behind.
    return sum(end - max(0, committed[place][0]) for place, end in ends.items())
