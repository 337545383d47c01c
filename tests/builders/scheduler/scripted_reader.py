"""A reader of the scheduler's topics without Kafka, for tests of its journal."""

from collections.abc import Iterable, Mapping, Sequence

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.scheduler.journal import ARMS_LOG, CONTROL_LOG, FLEET_LOG
from seamlessflow.schemas.records import Record
from tests.builders.records import control

REMOVAL = control.claimed()
"""A record without a value, which readers pass over."""


class ScriptedReader:
    """A reader that returns the batches of the partitions that were added, then nothing."""

    def __init__(
        self,
        control: Sequence[Sequence[Record]] = (),
        fleet: Sequence[Record] = (),
        arms: Sequence[Record] = (),
        control_end: int | None = None,
        while_arms_are_read: Mapping[LogPartition, Sequence[Record]] | None = None,
    ) -> None:
        self.started: dict[LogPartition, int] = {}
        self.away = False
        self.beat: Record | None = None
        """Record that comes on `fleet` whenever no other one does."""
        self._batches: dict[LogPartition, list[Sequence[Record]]] = {
            CONTROL_LOG: list(control),
            FLEET_LOG: [fleet] if fleet else [],
            ARMS_LOG: [[record] for record in arms],
        }
        sizes = {name: sum(map(len, batches)) for name, batches in self._batches.items()}
        self._ends = dict(sizes)
        if control_end is not None:
            self._ends[CONTROL_LOG] = control_end
        self._next = dict.fromkeys(self._batches, 0)
        self._while_arms_are_read = dict(while_arms_are_read or {})

    def later(self, partition: LogPartition, *records: Record) -> None:
        """Add one more batch."""
        self._batches[partition].append(records)
        self._ends[partition] += len(records)

    def add(self, offsets: Mapping[LogPartition, int]) -> None:
        self.started.update(offsets)

    def remove(self, partitions: Iterable[LogPartition]) -> None:
        for partition in partitions:
            self.started.pop(partition, None)

    def ends(
        self, partitions: Iterable[LogPartition], limit_s: float | None = None
    ) -> Mapping[LogPartition, int]:
        if self.away:
            raise KafkaUnavailable("nowhere", limit_s or 0)
        return {partition: self._ends[partition] for partition in partitions}

    def position(self, partition: LogPartition) -> int:
        return self._next[partition]

    def poll(self, timeout_s: float) -> list[Received]:
        for partition in self.started:
            if self._batches[partition]:
                if partition == ARMS_LOG:
                    for other, records in self._while_arms_are_read.items():
                        self.later(other, *records)
                    self._while_arms_are_read.clear()
                batch = self._batches[partition].pop(0)
                received = [self._received(partition, record) for record in batch]
                start = self.started[partition]
                return [
                    item for item in received if item.offset >= start and item.record is not REMOVAL
                ]
        return [] if self.beat is None else [self._received(FLEET_LOG, self.beat)]

    def _received(self, partition: LogPartition, record: Record) -> Received:
        offset = self._next[partition]
        self._next[partition] += 1
        return Received(partition[0], 0, offset, getattr(record, "at_ms", 0), None, (), record)
