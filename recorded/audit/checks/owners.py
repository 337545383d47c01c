"""Owners of the partitions of `sessions`, and the time for which they were at work. Pure.

A manager's event counts only if its epoch is that of the newest claim. All readers ignore an event
that was written behind a newer claim. Events of workers have no epoch.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import PartitionClaimed

MOST_BETWEEN_MS = 10_000
"""Most of a pause between two events of managers that counts as time at work.

In an outage, or while no manager owns the partition, no deadline passes.
"""


@dataclass(slots=True)
class _Owner:
    epoch: int = 0
    last_ms: int | None = None
    worked_ms: int = 0


@dataclass(slots=True)
class Owners:
    """State of each partition's ownership."""

    _owners: defaultdict[int, _Owner] = field(default_factory=lambda: defaultdict(_Owner))

    def apply(self, received: Received) -> bool:
        """Fold in a record of `sessions`; return True if it counts."""
        owner, record = self._owners[received.partition], received.record
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
        """Return for how long a manager was seen at work; never more than the time that passed."""
        return self._owners[partition].worked_ms
