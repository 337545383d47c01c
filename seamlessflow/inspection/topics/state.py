"""State of the topics on a cluster: their offsets, and the lag of the Kafka consumer groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from consumers.trajectories.settings import ManagerSection
from infra.errors import KafkaUnavailable
from infra.kafka.bounds import BoundsLookup
from infra.kafka.client import Partition
from infra.kafka.reader import Reader
from infra.kafka.start.cluster import find_cluster
from infra.kafka.topics.found import partition_counts
from infra.settings import KafkaSettings, ProcessSettings
from producers.agents.settings import AgentsSection
from schemas.topics import REQUESTS, TASKS, TOPICS

_ANSWER_S = _BOUNDS_S = 10.0
_CAPTION = (
    "offsets: from the first that is kept to the end. A topic holds at most as many records: each "
    "transaction takes an offset, compaction removes records"
)


class TopicStateSettings(ProcessSettings):
    """The cluster, and the Kafka consumer groups that read from it."""

    manager: ManagerSection = ManagerSection()
    agents: AgentsSection = AgentsSection()

    @property
    def groups(self) -> Mapping[str, str]:
        """Groups that commit offsets, by topic; all other readers keep their own place."""
        return {REQUESTS.name: self.manager.group, TASKS.name: self.agents.group}


@dataclass(frozen=True)
class TopicState:
    """State of one topic; `lag` counts offsets behind those that `group` has committed."""

    name: str
    partitions: int
    offsets: int
    """Offsets that its partitions keep: its records, and those of transactions' marks and gaps."""
    dead_letters: int
    group: str = ""
    lag: int | None = None


def states(settings: TopicStateSettings) -> list[TopicState]:
    """Return the state of every topic of the contract that exists and that the user may see.

    Raises `KafkaUnavailable` and `KafkaRefused`.
    """
    kafka = settings.kafka
    find_cluster(kafka, limit_s=_ANSWER_S)  # knows why brokers refuse a connection
    there = partition_counts(kafka)
    names = [name for name in TOPICS if kafka.topic_prefix + name in there]
    wanted = [name for topic in names for name in (topic, TOPICS[topic].dead_letters)]
    places = [
        (name, number)
        for name in wanted
        for number in range(there.get(kafka.topic_prefix + name, 0))
    ]
    kept = _kept(kafka, places)
    return [_state(settings, name, kept) for name in names]


def table(found: list[TopicState]) -> Table:
    """Return the states as a table for the terminal."""
    shown = Table(
        "topic", "partitions", "offsets", "dead letters", "read by", "lag", caption=_CAPTION
    )
    for column in (1, 2, 3, 5):
        shown.columns[column].justify = "right"
    for state in found:
        lag = "" if state.lag is None else f"{state.lag:,}"
        dead = f"{state.dead_letters:,}" if state.dead_letters else ""
        shown.add_row(
            state.name, str(state.partitions), f"{state.offsets:,}", dead, state.group, lag
        )
    return shown


def _state(settings: TopicStateSettings, name: str, kept: Mapping[Partition, range]) -> TopicState:
    own = {place: there for place, there in kept.items() if place[0] == name}
    letters = TOPICS[name].dead_letters
    dead = sum(len(there) for place, there in kept.items() if place[0] == letters)
    group = settings.groups.get(name, "")
    lag = _lag(settings.kafka, group, own) if group else None
    return TopicState(name, len(own), sum(map(len, own.values())), dead, group, lag)


def _kept(settings: KafkaSettings, places: Sequence[Partition]) -> Mapping[Partition, range]:
    lookup = BoundsLookup(settings)
    try:
        found = lookup.bounds(places, _BOUNDS_S)
    finally:
        lookup.close()
    if silent := [place for place in places if place not in found]:
        topic, number = silent[0]
        reason = f"no answer about {settings.topic_prefix}{topic}[{number}]"
        raise KafkaUnavailable(settings.bootstrap_servers, _BOUNDS_S, reason)
    return {place: range(*bounds) for place, bounds in found.items()}


def _lag(settings: KafkaSettings, group: str, kept: Mapping[Partition, range]) -> int:
    reader = Reader(settings, "topics", group=group)
    try:
        committed = reader.committed(list(kept))
    finally:
        reader.close()
    # A partition without a commit has a negative offset: all that it keeps is behind.
    return sum(there.stop - max(there.start, committed[place][0]) for place, there in kept.items())
