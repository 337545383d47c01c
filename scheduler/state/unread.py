"""The fold of looks at Kafka consumer groups: since when records wait for a reader.

Called by `scheduler/journal.py` and tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A Kafka consumer group as it is now, and how far it is behind on the topic it reads."""

    topic: str
    group: str
    members: int
    behind: Mapping[int, tuple[int, int]]
    """Next record's offset, and how many offsets the group is behind, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadPartition:
    """A partition's waiting records; nothing from `offset` on was read since `since_ms`."""

    offset: int
    lag: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadTopic:
    """The newest look at a topic and its group."""

    group: str
    members: int
    partitions: Mapping[int, UnreadPartition] = field(default_factory=dict)
    """Partitions with waiting records, by number."""


UnreadTopics = Mapping[str, UnreadTopic]
"""The newest looks, by topic."""


def apply(topics: UnreadTopics, look: GroupLook, now_ms: int) -> UnreadTopics:
    """Return the topics after a look."""
    before = topics.get(look.topic)
    partitions = before.partitions if before else {}
    waiting = {
        number: UnreadPartition(
            offset=offset, lag=lag, since_ms=_since_ms(partitions.get(number), offset, now_ms)
        )
        for number, (offset, lag) in look.behind.items()
        if lag > 0
    }
    seen = UnreadTopic(group=look.group, members=look.members, partitions=waiting)
    return {**topics, look.topic: seen}


def _since_ms(partition: UnreadPartition | None, offset: int, now_ms: int) -> int:
    return partition.since_ms if partition is not None and partition.offset == offset else now_ms
