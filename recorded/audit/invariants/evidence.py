"""Evidence that the log still gives: the records that retention left, and the events that count.

A missing record is a violation only if retention cannot have removed it. That is so if its
partition is whole, or if it was written after the first record left there.

A manager's event counts only if its epoch is the newest claim's. All readers ignore an event with
an older epoch behind a newer claim. Workers' events have no epoch. Pure.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import PartitionClaimed, SessionOpened

CLOCKS_MS = 60_000
"""Largest difference between two machines' clocks."""
MOST_BETWEEN_MS = 10_000
"""Longest pause between two manager events that counts as time at work.

In an outage, or while no manager owns the partition, no deadline passes.
"""


def ends_with_run(opened: SessionOpened) -> bool:
    """Return True if the session ends with its run, as one for training or exploration does.

    Services name their sessions otherwise. Those go on, and so do evaluation sessions.
    """
    named = session_id(opened.group_id, opened.sample, opened.attempt)
    return opened.purpose != "eval" and bool(opened.group_id) and opened.session_id == named


@dataclass(slots=True)
class Kept:
    """Partitions without their beginning, with the time of the first record left in each."""

    _since_ms: dict[LogPartition, float] = field(default_factory=dict)
    _elsewhere: set[str] = field(default_factory=set)

    def leave(self, topic: str) -> None:
        """Note that the topic is another run's and is not read, so none of its records is there."""
        self._elsewhere.add(topic)

    def cut(self, partition: LogPartition) -> None:
        """Note that the partition's first records were removed."""
        self._since_ms[partition] = math.inf

    def apply(self, received: Received) -> None:
        """Note the time of a partition's first record."""
        place = received.topic, received.partition
        if self._since_ms.get(place) == math.inf:
            self._since_ms[place] = received.timestamp_ms

    def whole(self, partition: LogPartition) -> bool:
        """Return True if all the partition's records are there."""
        return partition not in self._since_ms and partition[0] not in self._elsewhere

    def cut_anywhere(self, topic: str) -> bool:
        """Return True if any partition in the topic lost records."""
        return any(name == topic for name, _ in self._since_ms)

    def holds(self, topic: str, at_ms: float, partition: int | None = None) -> bool:
        """Return True if a record that was written at this time cannot have been removed.

        Without `partition`, it may have been in any partition of the topic.
        """
        return all(
            at_ms >= since_ms + CLOCKS_MS
            for (name, number), since_ms in self._since_ms.items()
            if name == topic and partition in (None, number)
        )


@dataclass(slots=True)
class _Owner:
    epoch: int = 0
    last_ms: int | None = None
    worked_ms: int = 0


@dataclass(slots=True)
class Owners:
    """Owners of `sessions` partitions, and how long they were at work."""

    _owners: defaultdict[int, _Owner] = field(default_factory=lambda: defaultdict(_Owner))

    def apply(self, received: Received) -> bool:
        """Fold in a record on `sessions`; return True if it counts."""
        owner = self._owners[received.partition]
        record = received.record
        epoch: int | None = getattr(record, "epoch", None)
        if epoch is None:
            return True
        if isinstance(record, PartitionClaimed):
            owner.epoch = max(owner.epoch, epoch)
        elif epoch < owner.epoch:
            return False
        now_ms: int = getattr(record, "at_ms", 0)
        if owner.last_ms is not None:
            owner.worked_ms += min(max(0, now_ms - owner.last_ms), MOST_BETWEEN_MS)
        owner.last_ms = max(owner.last_ms or 0, now_ms)
        return True

    def worked_ms(self, partition: int) -> int:
        """Return how many ms a manager was seen at work; never more than the time that passed."""
        return self._owners[partition].worked_ms
