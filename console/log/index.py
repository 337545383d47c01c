"""Index of the log: each record's place, time, type and key, in 33 bytes. Keeps no record.

One thread appends, any thread reads. Rows never change, and a reader looks only at the rows that
were there when it began. A record's time is the latest time in its partition up to that record, so
time never goes back in a partition.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seamlessflow.console.log.moment import Moment, MomentNotOnLog
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.schemas.codec import HEADER_BYTES, MARKER
from seamlessflow.schemas.records import RECORDS
from seamlessflow.schemas.registry import (
    raw_schemas,
    schema_fingerprint,
    schema_versions,
    self_contained,
)

Cut = Mapping[LogPartition, int]
"""For each partition, the number of rows that belong to a moment."""
GARBAGE = "(garbage)"
EMPTY = "(empty)"
NEWER = "(newer release)"
KINDS = (GARBAGE, EMPTY, NEWER, *sorted(RECORDS))
"""Types of records; a row holds its type's number."""
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
NO_KEY = 0
_COLUMNS = {
    "offset": "<i8",
    "written_ms": "<i8",
    "reached_ms": "<i8",
    "kind": "<u1",
    "key": "<u4",
    "size": "<u4",
}
ROW_BYTES = sum(np.dtype(form).itemsize for form in _COLUMNS.values())
_GROWTH = 1.25
_FIRST_ROWS = 64
_LONGEST_KEY = 256
_MOST_SIZE = 2**32 - 1


class IndexRow(NamedTuple):
    """A record as the index gets it."""

    offset: int
    at_ms: int
    kind: int
    key: bytes | None
    size: int


class PartitionIndex:
    """One partition's rows, in offset order."""

    def __init__(self) -> None:
        self.rows = 0
        """Row count; readers take it before they look at a column."""
        self._arrays = {name: np.empty(_FIRST_ROWS, form) for name, form in _COLUMNS.items()}

    def append(self, rows: Sequence[tuple[IndexRow, int]]) -> None:
        """Append rows, each with its key's number. Their offsets are above all earlier ones."""
        end = self.rows + len(rows)
        self._grow(end)
        self._fill("offset", end, [row.offset for row, _ in rows])
        self._fill("written_ms", end, [row.at_ms for row, _ in rows])
        self._fill("kind", end, [row.kind for row, _ in rows])
        self._fill("key", end, [key for _, key in rows])
        self._fill("size", end, [min(row.size, _MOST_SIZE) for row, _ in rows])
        written = self._arrays["written_ms"][self.rows : end]
        before = self._arrays["reached_ms"][self.rows - 1] if self.rows else written[0]
        reached = np.maximum(np.maximum.accumulate(written), before)
        self._arrays["reached_ms"][self.rows : end] = reached
        self.rows = end

    def column(self, name: str, rows: int | None = None) -> Any:
        """Return the first rows of a column, without a copy; by default all."""
        rows = self.rows if rows is None else rows
        return self._arrays[name][:rows]

    def row_of(self, offset: int) -> int:
        """Return the row of the last record at or before an offset, -1 if there is none."""
        return int(np.searchsorted(self.column("offset"), offset, "right")) - 1

    def rows_until(self, at_ms: int) -> int:
        """Return how many rows come before the first that is later than a time."""
        return int(np.searchsorted(self.column("reached_ms"), at_ms, "right"))

    def end(self, rows: int) -> int:
        """Return the offset behind the first `rows` rows."""
        return int(self._arrays["offset"][rows - 1]) + 1 if rows else 0

    @property
    def memory(self) -> int:
        """Bytes that the columns take."""
        return sum(array.nbytes for array in self._arrays.values())

    def _grow(self, rows: int) -> None:
        capacity = len(self._arrays["offset"])
        if rows <= capacity:
            return
        larger = max(rows, int(capacity * _GROWTH))
        for name, array in self._arrays.items():
            grown = np.empty(larger, array.dtype)
            grown[: self.rows] = array[: self.rows]
            self._arrays[name] = grown

    def _fill(self, name: str, end: int, values: list[int]) -> None:
        self._arrays[name][self.rows : end] = values


class LogIndex:
    """Rows of all partitions, and the keys by number."""

    def __init__(self) -> None:
        self.partitions: dict[LogPartition, PartitionIndex] = {}
        self.keys: list[bytes] = [b""]
        """Keys by number; number 0 stands for none."""
        self._numbers: dict[bytes, int] = {}

    def append(self, batch: Mapping[LogPartition, Sequence[IndexRow]]) -> None:
        """Append the new rows of some partitions."""
        for place, rows in batch.items():
            partition = self.partitions.get(place) or PartitionIndex()
            partition.append([(row, self._number(row.key)) for row in rows])
            self.partitions.setdefault(place, partition)

    @property
    def records(self) -> int:
        """Row count over all partitions."""
        return sum(partition.rows for partition in self._all())

    @property
    def memory(self) -> int:
        """Bytes that all columns take, without the keys."""
        return sum(partition.memory for partition in self._all())

    def whole(self) -> Cut:
        """Return the present cut."""
        return {place: partition.rows for place, partition in self.partitions.copy().items()}

    def cut(self, moment: Moment) -> Cut:
        """Return the records that count at a moment.

        In the moment's partition they are the records up to its offset. In each other partition
        they are the records before the first that is later than the moment's record. Raises
        `MomentNotOnLog`.
        """
        row = self.row(moment)
        at_ms = int(self.partitions[moment.place].column("reached_ms")[row])
        rows = {
            place: partition.rows_until(at_ms)
            for place, partition in self.partitions.copy().items()
        }
        return {**rows, moment.place: row + 1}

    def row(self, moment: Moment) -> int:
        """Return the row of a moment's record, or of the last record before it.

        Raises `MomentNotOnLog`.
        """
        partition = self.partitions.get(moment.place)
        if partition is None or not partition.rows:
            raise MomentNotOnLog(moment, "no record of this partition was read")
        if moment.offset >= partition.end(partition.rows):
            last = partition.end(partition.rows) - 1
            raise MomentNotOnLog(moment, f"the newest record that was read has the offset {last}")
        row = partition.row_of(moment.offset)
        if row < 0:
            first = int(partition.column("offset")[0])
            raise MomentNotOnLog(moment, f"the log begins at the offset {first}")
        return row

    def newest(self) -> Moment | None:
        """Return the place of the log's latest record, or None if there is no record."""
        rows = self.whole()
        times = {place: self._reached(place, count) for place, count in rows.items() if count}
        if not times:
            return None
        topic, number = max(times, key=lambda place: (times[place], place))
        partition = self.partitions[topic, number]
        return Moment(topic, number, partition.end(rows[topic, number]) - 1)

    def time(self, cut: Cut) -> int:
        """Return the latest time in a cut, in ms since the epoch; 0 if it has no records."""
        return max((self._reached(place, rows) for place, rows in cut.items() if rows), default=0)

    def numbers_of(self, key: str) -> list[int]:
        """Return a key's number in a list, which is empty if no record has the key."""
        number = self._numbers.get(_short(key.encode(errors="surrogateescape")))
        return [] if number is None else [number]

    def numbers_beginning(self, text: str) -> list[int]:
        """Return the numbers of all keys that begin with a text."""
        beginning = text.encode(errors="surrogateescape")
        return [
            number
            for number, key in enumerate(self.keys)
            if number != NO_KEY and key.startswith(beginning)
        ]

    def _reached(self, place: LogPartition, rows: int) -> int:
        return int(self.partitions[place].column("reached_ms")[rows - 1])

    def _all(self) -> Iterator[PartitionIndex]:
        yield from self.partitions.copy().values()

    def _number(self, key: bytes | None) -> int:
        if key is None:
            return NO_KEY
        short = _short(key)
        number = self._numbers.get(short)
        if number is None:
            number = self._numbers[short] = len(self.keys)
            self.keys.append(short)
        return number


def kind_of(value: bytes) -> int:
    """Return the number of a value's type, from its header only."""
    header = value[:HEADER_BYTES]
    number = _HEADERS.get(header)
    if number is not None:
        return number
    if len(header) == HEADER_BYTES and header.startswith(MARKER):
        return KIND_NUMBERS[NEWER]
    return KIND_NUMBERS[GARBAGE if value else EMPTY]


def _short(key: bytes) -> bytes:
    """Return a key; for a long one, its beginning and its hash."""
    if len(key) <= _LONGEST_KEY:
        return key
    return key[:_LONGEST_KEY] + b"~" + hashlib.sha256(key).hexdigest()[:16].encode()


def _headers() -> dict[bytes, int]:
    raw = raw_schemas()
    present = {name: [schema_fingerprint(self_contained(name, raw))] for name in raw}
    earlier = {name: list(versions) for name, versions in schema_versions().items()}
    return {
        MARKER + bytes.fromhex(fingerprint): KIND_NUMBERS[name]
        for names in (earlier, present)
        for name, fingerprints in names.items()
        if name in KIND_NUMBERS
        for fingerprint in fingerprints
    }


_HEADERS = _headers()
