"""Kafka consumer groups' lag: offsets behind those that a group has committed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.topics.groups import FoundGroup, GroupMember

ABSENT = ("unknown", "dead")
"""States of a group that never existed."""


@dataclass(frozen=True)
class PartitionLag:
    """A partition as a group reads it; if it has no owner, no member reads it."""

    number: int
    lag: int
    owner: str = ""
    host: str = ""


@dataclass(frozen=True)
class GroupState:
    """A group and each partition of the topic that it reads."""

    name: str
    topic: str
    state: str = ""
    members: int = 0
    partitions: Sequence[PartitionLag] = ()
    waits_since_ms: int | None = None
    """Time of the oldest record that waits for a group without members. None if no record waits, or
    if the time was not found soon enough."""
    refused: str = ""
    """Reason if the user may not see the group; the rest is then unknown."""

    @property
    def lag(self) -> int:
        """Sum over its partitions."""
        return sum(place.lag for place in self.partitions)


def behind(
    kept: Mapping[LogPartition, range], committed: Mapping[LogPartition, int]
) -> Mapping[LogPartition, int]:
    """Return each partition's lag: how many offsets it keeps behind the committed one."""
    # A partition without a commit has a negative offset: all that it keeps is behind.
    return {
        place: offsets.stop - max(offsets.start, committed[place])
        for place, offsets in kept.items()
    }


def group_state(
    name: str, topic: str, group: FoundGroup, lags: Mapping[LogPartition, int]
) -> GroupState:
    """Return the group, with owner and lag for each partition in `lags`."""
    shown = _labels(group.members)
    owners = {
        place: (shown[member.id], member.host)
        for member in group.members
        for place in member.partitions
    }
    partitions = [
        PartitionLag(place[1], lag, *owners.get(place, ("", "")))
        for place, lag in sorted(lags.items())
    ]
    return GroupState(name, topic, group.state, len(group.members), partitions)


def _labels(members: Sequence[GroupMember]) -> Mapping[str, str]:
    """Return a name for each member's id; no two members have the same name."""
    names = [member.name for member in members]
    return {
        member.id: member.name if names.count(member.name) == 1 else f"{member.name} {member.id}"
        for member in members
    }
