"""A log in memory in place of Kafka's, for consoles, and histories that have read it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.log.lookup import Ranges, RawDecoder
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.web.console import Console, RunBeside, ShownRun
from seamlessflow.console.web.timeline_pages import timeline_data
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL

KAFKA = KafkaSettings(bootstrap_servers="unused:9092")
RUN = "runs/mine"


class MemoryLog:
    """Raw records by their places; a lookup for a log."""

    def __init__(self, items: Iterable[Received] = ()) -> None:
        self.items: dict[tuple[LogPartition, int], Received] = {}
        self.asked: list[Ranges] = []
        """Questions for ranges so far."""
        self.add(items)

    def add(self, items: Iterable[Received]) -> None:
        """Append records."""
        self.items |= {((item.topic, item.partition), item.offset): item for item in items}

    def ranges(self, ranges: Ranges) -> Mapping[LogPartition, Sequence[Received]]:
        """Return the records of ranges."""
        self.asked.append(ranges)
        return {
            place: [
                self.items[place, offset]
                for offset in range(first, end)
                if (place, offset) in self.items
            ]
            for place, (first, end) in ranges.items()
        }

    def raw(
        self, offsets: Mapping[LogPartition, Sequence[int]]
    ) -> Mapping[tuple[LogPartition, int], Received]:
        """Return records by their places."""
        asked = [(place, offset) for place, numbers in offsets.items() for offset in numbers]
        return {place: self.items[place] for place in asked if place in self.items}


def raw_item(
    topic: str,
    partition: int,
    offset: int,
    at_ms: int,
    value: bytes,
    key: str | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> Received:
    """Return a record as a reader of raw bytes delivers it."""
    raw = Raw(value, None if key is None else key.encode())
    return Received(topic, partition, offset, at_ms, None, headers, raw, len(value))


def items_of(
    topic: str, records: Iterable[Record], partition: int = 0, first: int = 0, step_ms: int = 1_000
) -> list[Received]:
    """Return records as they stand on a partition, a second apart."""
    return [
        raw_item(topic, partition, offset, offset * step_ms, encode(record))
        for offset, record in zip(count(first), records, strict=False)
    ]


def history_of(items: Sequence[Received]) -> tuple[RunLog, MemoryLog]:
    """Return a log that has read these records, and the log that it looks them up in."""
    log = MemoryLog(items)
    run_log = RunLog(log, RawDecoder(KAFKA))
    run_log.append(items)
    return run_log, log


def beside_of(items: Sequence[Received]) -> RunBeside:
    """Return a run of these records, as it stands beside another."""
    run_log, _ = history_of(items)
    decoded = (run_log.decoder.decoded(item) for item in items if item.topic == CONTROL.name)
    return RunBeside(run_log.course, timeline_data([item.record for item in decoded], "other"))


def console_of(
    items: Sequence[Received], beside: Mapping[str, RunBeside] | None = None, **progress: Any
) -> Console:
    """Return the pages of these records, with other runs beside them."""
    run_log, _ = history_of(items)
    run = ShownRun(RUN, f" --out {RUN}", beside=beside or {})
    return Console(run_log, lambda: ReadingProgress(**progress), run)
