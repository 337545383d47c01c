"""Search in the index: places of records by topic, partition, key, type and time. Pure.

Records from several partitions are ordered by time, then by topic, partition and offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from seamlessflow.console.log.index import KIND_NUMBERS, KINDS, Cut, LogIndex, PartitionIndex
from seamlessflow.console.log.moment import READ_TOPICS, Moment, parse_moment
from seamlessflow.console.views.query import Query
from seamlessflow.infra.kafka.client import LogPartition

MOST_SHOWN = 500
SHOWN = 50
MOST_BYTES = 64_000_000
"""Most bytes that a list's records have together; the next list goes on behind them."""
_RANK = {topic: number for number, topic in enumerate(READ_TOPICS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """A search for records."""

    topic: str = ""
    partition: int | None = None
    key: str = ""
    """A whole key, or its beginning followed by `*`."""
    kind: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    before: Moment | None = None
    """Only records before this one, in list order."""
    letters: bool = False
    """Only dead letters."""
    text: str = ""
    """Text in the record's bytes; upper and lower case ASCII letters count as equal."""
    count: int = SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """Places of the newest records that fit, the newest first."""

    places: tuple[tuple[LogPartition, int], ...]
    matching: int
    """Count of all that fit."""
    more: bool
    """True if older ones also fit."""

    @property
    def last(self) -> Moment | None:
        """Place of the oldest one."""
        return Moment(*self.places[-1][0], self.places[-1][1]) if self.places else None


def record_query(query: Query) -> RecordQuery:
    """Return the search that a query asks for. Raises `QueryRejected` and `BadMoment`."""
    return RecordQuery(
        topic=query.choice("topic", READ_TOPICS),
        partition=query.number("partition"),
        key=query.text("key"),
        kind=query.choice("type", KINDS),
        since_ms=query.time("since"),
        until_ms=query.time("until"),
        before=parse_moment(query.text("before")),
        letters=bool(query.choice("letters", ("1",))),
        text=query.text("text"),
        count=query.number("count", 1, MOST_SHOWN) or SHOWN,
    )


def found_records(index: LogIndex, cut: Cut, query: RecordQuery) -> FoundRecords:
    """Return the newest records in a cut that fit a query. Raises `MomentNotOnLog`."""
    keys = _keys(index, query.key) if query.key else None
    candidates: list[tuple[int, int, int, int, LogPartition, int]] = []
    matching = 0
    more = False
    for place, partition in _partitions(index, query):
        rows = _fitting(partition, cut.get(place, 0), query, keys)
        matching += len(rows)
        rows = rows[: np.searchsorted(rows, _bound(index, place, query.before), "left")]
        more |= len(rows) > query.count
        newest = rows[-query.count :]
        times = partition.column("reached_ms")[newest].tolist()
        offsets = partition.column("offset")[newest].tolist()
        sizes = partition.column("size")[newest].tolist()
        rank = _RANK[place[0]]
        candidates += [
            (at_ms, rank, place[1], offset, place, size)
            for at_ms, offset, size in zip(times, offsets, sizes, strict=True)
        ]
    candidates.sort(reverse=True)
    sizes = accumulate(size for *_, size in candidates)
    shown = [
        candidate
        for number, (candidate, size) in enumerate(zip(candidates, sizes, strict=True))
        if number < query.count and (size <= MOST_BYTES or number == 0)
    ]
    return FoundRecords(
        places=tuple((place, offset) for _, _, _, offset, place, _ in shown),
        matching=matching,
        more=more or len(candidates) > len(shown),
    )


def _keys(index: LogIndex, wanted: str) -> list[int]:
    """Return the numbers of the keys that a query asks for."""
    if wanted.endswith("*"):
        return index.numbers_beginning(wanted[:-1])
    return index.numbers_of(wanted)


def _partitions(
    index: LogIndex, query: RecordQuery
) -> Iterator[tuple[LogPartition, PartitionIndex]]:
    for place, partition in sorted(index.partitions.copy().items()):
        topic, number = place
        if query.topic and topic != query.topic:
            continue
        if query.letters and not topic.endswith(".dlq"):
            continue
        if query.partition is None or query.partition == number:
            yield place, partition


def _fitting(
    partition: PartitionIndex, rows: int, query: RecordQuery, keys: list[int] | None
) -> Any:
    """Return the numbers of the rows that fit, ascending."""
    first = 0
    if query.since_ms is not None:
        first = min(rows, partition.rows_until(query.since_ms - 1))
    if query.until_ms is not None:
        rows = min(rows, partition.rows_until(query.until_ms))
    if not query.kind and keys is None:
        return np.arange(first, max(first, rows))
    fits = np.ones(max(0, rows - first), bool)
    if query.kind:
        fits &= partition.column("kind", rows)[first:] == KIND_NUMBERS[query.kind]
    if keys is not None:
        column = partition.column("key", rows)[first:]
        fits &= column == keys[0] if len(keys) == 1 else np.isin(column, keys)
    return np.flatnonzero(fits) + first


def _bound(index: LogIndex, place: LogPartition, before: Moment | None) -> int:
    """Return how many rows of a partition stand before a moment in list order."""
    partition = index.partitions[place]
    if before is None:
        return partition.rows
    row = index.row(before)
    if place == before.place:
        return row
    at_ms = int(index.partitions[before.place].column("reached_ms")[row])
    earlier = (_RANK[place[0]], place[1]) < (_RANK[before.topic], before.partition)
    return partition.rows_until(at_ms if earlier else at_ms - 1)
