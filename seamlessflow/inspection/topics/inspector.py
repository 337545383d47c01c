"""A cluster's inspector: it looks up topics, and the groups that commit offsets for them.

Called by `seamlessflow topics list`. It joins no group, and reads only records that a group without
members would read next. Offsets do not say how many records there are. On request the records are
counted: each partition is read up to its present end, within a time limit.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.clock import never
from seamlessflow.infra.errors import KafkaRefused
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.topics.groups import GroupLookup
from seamlessflow.infra.kafka.topics.lag import ABSENT, GroupState, behind, group_state
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings, ProcessSettings
from seamlessflow.inspection.topics.state import TopicState
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.recorded.judging.settings import RewardsSection
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import REQUESTS, SESSIONS, TASKS, TOPICS

_ANSWER_S = 10.0
_LEADERS_S = 30.0
_OLDEST_S = 3.0


class TopicStateSettings(ProcessSettings):
    """The cluster, and the Kafka consumer groups that read from it."""

    manager: ManagerSection = ManagerSection()
    agents: AgentsSection = AgentsSection()
    rewards: RewardsSection = RewardsSection()

    @property
    def groups(self) -> Mapping[str, str]:
        """Groups that commit offsets, by topic; all other readers keep their own place."""
        return {
            REQUESTS.name: self.manager.group,
            SESSIONS.name: self.rewards.group,
            TASKS.name: self.agents.group,
        }


class TopicInspector:
    """Clients that are kept from one look to the next. A context manager."""

    def __init__(self, settings: TopicStateSettings) -> None:
        """Raise `KafkaUnavailable` or `KafkaRefused` if no broker answers as it should."""
        self._settings = settings
        self._kafka = settings.kafka
        find_cluster(self._kafka, limit_s=_ANSWER_S)  # knows why brokers refuse a connection
        self._groups = GroupLookup(self._kafka)
        self._bounds = BoundsLookup(self._kafka)
        self._readers = {
            group: Reader(self._kafka, "topics", group=group)
            for group in set(settings.groups.values())
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bounds.close()
        for reader in self._readers.values():
            reader.close()

    def look(self) -> list[TopicState]:
        """Return the state of every contract topic that exists and that the user may see.

        Raises `KafkaUnavailable` and `KafkaRefused`. If the user may not see a group, its state has
        the reason.
        """
        prefix = self._kafka.topic_prefix
        counts = partition_counts(self._kafka, _ANSWER_S)
        names = [name for name in TOPICS if prefix + name in counts]
        wanted = [name for topic in names for name in (topic, TOPICS[topic].dead_letters)]
        places = [
            (name, number) for name in wanted for number in range(counts.get(prefix + name, 0))
        ]
        kept = self._kept(places)
        return [self._state(name, kept) for name in names]

    def _state(self, name: str, kept: Mapping[LogPartition, range]) -> TopicState:
        ranges = {place: offsets for place, offsets in kept.items() if place[0] == name}
        letters = TOPICS[name].dead_letters
        dead = sum(len(offsets) for place, offsets in kept.items() if place[0] == letters)
        group = self._settings.groups.get(name)
        state = self._group(group, name, ranges) if group else None
        if name == SESSIONS.name and state is not None and state.state in ABSENT:
            state = None  # no run here has judges
        return TopicState(name, len(ranges), sum(map(len, ranges.values())), dead, state)

    def _group(self, name: str, topic: str, ranges: Mapping[LogPartition, range]) -> GroupState:
        try:
            group = self._groups.find(name, _LEADERS_S)
            committed = self._readers[name].committed(list(ranges), _LEADERS_S)
        except KafkaRefused as error:
            return GroupState(name, topic, refused=error.reason)
        read = {place: offset for place, (offset, _) in committed.items()}
        state = group_state(name, topic, group, behind(ranges, read))
        if state.members or not state.lag:
            return state
        waiting = {
            place: max(offsets.start, read[place])
            for place, offsets in ranges.items()
            if offsets.stop > max(offsets.start, read[place])
        }
        return replace(state, waits_since_ms=self._oldest_ms(self._readers[name], waiting))

    def _oldest_ms(self, reader: Reader, waiting: Mapping[LogPartition, int]) -> int | None:
        """Return the oldest time among records at these offsets, or None if one did not come."""
        came: dict[LogPartition, int] = {}
        deadline = time.monotonic() + _OLDEST_S
        reader.assign(waiting)
        while len(came) < len(waiting) and time.monotonic() < deadline:
            for item in reader.poll(0.1):
                came.setdefault((item.topic, item.partition), item.timestamp_ms)
        reader.assign({})
        return min(came.values()) if len(came) == len(waiting) else None

    def _kept(self, places: Sequence[LogPartition]) -> Mapping[LogPartition, range]:
        bounds: dict[LogPartition, tuple[int, int]] = {}
        # A broker that has just started, or that moves leaders, answers only a moment later.
        outage = Outage(self._kafka, never, _LEADERS_S)
        while silent := [place for place in places if place not in bounds]:
            bounds |= self._bounds.bounds(silent, _ANSWER_S)
            if silent[0] not in bounds:
                topic, number = silent[0]
                outage.endure_silence(
                    f"no answer about {self._kafka.topic_prefix}{topic}[{number}]"
                )
        return {place: range(*bounds[place]) for place in places}


class _CountedRecord(Record):
    """Stand-in for any record: its bytes do not matter."""


def with_counts(
    settings: KafkaSettings, states: Sequence[TopicState], limit_s: float
) -> list[TopicState]:
    """Return the states with record counts; short topics are counted first.

    Once `limit_s` is over, the other states have the counts so far. Raises what `read_partitions`
    raises.
    """
    until_s = time.monotonic() + limit_s
    ascending = sorted(states, key=lambda state: state.offsets)
    counted = {state.name: _count(settings, state, until_s) for state in ascending}
    marked = []
    for state in states:
        records, whole = counted[state.name]
        marked.append(replace(state, records=records, counted=whole))
    return marked


def _count(settings: KafkaSettings, state: TopicState, until_s: float) -> tuple[int, bool]:
    """Return how many records were read, and False if the time was over before the end."""
    if not state.offsets:
        return 0, True
    number = 0
    record = _CountedRecord()
    if time.monotonic() > until_s:
        return number, False
    places = [(state.name, partition) for partition in range(state.partitions)]
    for _ in read_partitions(settings, places, rules=ReadingRules(decode=lambda _: record)):
        number += 1
        if time.monotonic() > until_s:
            return number, False
    return number, True
