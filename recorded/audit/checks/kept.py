"""Part of the log that retention has left. Pure.

A missing record is a violation only if retention would have kept it. That is so if its partition is
whole, or if it was written behind the first record that is left there.
"""

import math
from dataclasses import dataclass, field

from seamlessflow.infra.kafka.client import Partition, Received

CLOCKS_MS = 60_000
"""Most by which the clocks of two machines may differ."""


@dataclass(slots=True)
class Kept:
    """Partitions without their beginning, with the time of the first record that is left."""

    _since_ms: dict[Partition, float] = field(default_factory=dict)
    _elsewhere: set[str] = field(default_factory=set)

    def leave(self, topic: str) -> None:
        """Note that the topic is another run's and is not read: none of it is there."""
        self._elsewhere.add(topic)

    def cut(self, partition: Partition) -> None:
        """Note that the partition's first records were removed."""
        self._since_ms[partition] = math.inf

    def apply(self, received: Received) -> None:
        """Note the time of the first record of a partition."""
        place = received.topic, received.partition
        if self._since_ms.get(place) == math.inf:
            self._since_ms[place] = received.timestamp_ms

    def whole(self, partition: Partition) -> bool:
        """Return True if all records of the partition are there."""
        return partition not in self._since_ms and partition[0] not in self._elsewhere

    def cut_anywhere(self, topic: str) -> bool:
        """Return True if records of any of the topic's partitions were removed."""
        return any(name == topic for name, _ in self._since_ms)

    def holds(self, topic: str, at_ms: float, partition: int | None = None) -> bool:
        """Return True if a record that was written at this time cannot have been removed.

        Without a partition it may have been in any of the topic.
        """
        return all(
            at_ms >= since_ms + CLOCKS_MS
            for (name, number), since_ms in self._since_ms.items()
            if name == topic and partition in (None, number)
        )
