"""Records read again from Kafka when a view needs them. Any thread; one question at a time.

Its clients are separate from the follower's: they jump about the log, and only a question waits for
them.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.infra.blobs import blob_store, following
from seamlessflow.infra.errors import BlobUnavailable, KafkaUnavailable, NewerRelease
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import UndecodableRecord, UnknownSchema, decode
from seamlessflow.schemas.topics import LETTERED

Ranges = Mapping[LogPartition, tuple[int, int]]
"""Offsets to read from each partition: the first, and the one behind the last."""
GROUP = "console"
_POLL_S = 0.02
_PATIENCE_S = 8.0
_BLOB_PATIENCE_S = 2.0
_CACHED_BYTES = 32 * 1024 * 1024
_ENTRY_BYTES = 1_000
_NEIGHBOURS = 64
"""Offsets less far apart than this are read as one range instead of each by itself."""
_FEW = 2_000
"""A read is a jump if no range has more offsets than this."""
_JUMP_BYTES, _RANGE_BYTES = 32_768, 262_144
"""Bytes fetched from each partition at once: fewer for a jump, which throws away what it fetches
beyond its records, than for a longer range."""
_OPTIONS: Mapping[str, Any] = {
    "enable.partition.eof": True,
    "queued.min.messages": 1_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
}


class RawDecoder:
    """Decoder for records as they stand on the log. Garbage becomes an `Unreadable`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._decode = following(blob_store(settings), decode, _BLOB_PATIENCE_S)

    def decoded(self, item: Received) -> Received:
        """Return an item with its raw bytes decoded.

        Its record is an `Unreadable` for garbage, for a newer release's record, and if a blob is
        missing. A record from a dead-letter topic stays raw.
        """
        if not isinstance(item.record, Raw):
            return item
        key = None if item.record.key is None else item.record.key.decode(errors="backslashreplace")
        if item.topic not in LETTERED:
            return item._replace(key=key)
        try:
            record = self._decode(item.record.value)
        except UnknownSchema as error:
            newer = NewerRelease(
                item.topic,
                item.partition,
                item.offset,
                f"the unknown schema fingerprint {error.fingerprint}",
            )
            record = Unreadable(str(newer))
        except (UndecodableRecord, BlobUnavailable) as error:
            record = Unreadable(str(error))
        return item._replace(key=key, record=record)


class RecordLookup:
    """Reader of offset ranges. It keeps the last records that were asked for by place."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._readers: dict[int, Reader] = {}
        """Readers by how many bytes they fetch at once."""
        self._asking = threading.Lock()
        self._cached: OrderedDict[tuple[LogPartition, int], Received] = OrderedDict()
        self._cached_bytes = 0

    def ranges(self, ranges: Ranges) -> dict[LogPartition, list[Received]]:
        """Return the raw records in ranges, each partition's in order. Missing ones are left out.

        Raises `KafkaUnavailable` if Kafka does not answer within 8 s, and what `Reader.poll`
        raises.
        """
        wanted = {place: bounds for place, bounds in ranges.items() if bounds[0] < bounds[1]}
        with self._asking:
            return self._read(wanted) if wanted else {}

    def raw(
        self, offsets: Mapping[LogPartition, Sequence[int]]
    ) -> dict[tuple[LogPartition, int], Received]:
        """Return records by partition and offset, without missing ones; raise as `ranges`."""
        asked = [(place, offset) for place, numbers in offsets.items() for offset in numbers]
        records = {key: self._cached[key] for key in asked if key in self._cached}
        missing: dict[LogPartition, list[int]] = {}
        for place, offset in asked:
            if (place, offset) not in records:
                missing.setdefault(place, []).append(offset)
        for ranges in _rounds(missing):
            for place, items in self.ranges(ranges).items():
                wanted = set(missing[place])
                records |= {(place, item.offset): item for item in items if item.offset in wanted}
        self._cache(records)
        return records

    def close(self) -> None:
        """Close the clients."""
        with self._asking:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    def _read(self, ranges: Ranges) -> dict[LogPartition, list[Received]]:
        fetched = _JUMP_BYTES if _longest(ranges) <= _FEW else _RANGE_BYTES
        reader = self._readers.get(fetched) or self._reader(fetched)
        records: dict[LogPartition, list[Received]] = {place: [] for place in ranges}
        left = dict(ranges)
        reader.assign({place: first for place, (first, _) in ranges.items()})
        deadline_s = time.monotonic() + _PATIENCE_S
        while left:
            for item in reader.poll(_POLL_S):
                first, end = ranges.get((item.topic, item.partition), (0, 0))
                if first <= item.offset < end:
                    records[item.topic, item.partition].append(item)
            done = [place for place in left if reader.position(place) >= left[place][1]]
            for place in done:
                del left[place]
            reader.remove(done)
            if left and time.monotonic() > deadline_s:
                self._readers.pop(fetched).close()  # its client may be in any state
                reason = f"records of {', '.join(f'{topic}[{n}]' for topic, n in left)}"
                raise KafkaUnavailable(self._settings.bootstrap_servers, _PATIENCE_S, reason)
        return records

    def _reader(self, fetched: int) -> Reader:
        options = {**_OPTIONS, "fetch.message.max.bytes": fetched}
        rules = ReadingRules(decode=Raw)
        reader = self._readers[fetched] = Reader(self._settings, GROUP, rules=rules, **options)
        return reader

    def _cache(self, records: Mapping[tuple[LogPartition, int], Received]) -> None:
        with self._asking:
            for key, item in records.items():
                if key not in self._cached:
                    self._cached_bytes += item.size + _ENTRY_BYTES
                self._cached[key] = item
                self._cached.move_to_end(key)
            while self._cached_bytes > _CACHED_BYTES and len(self._cached) > 1:
                _, dropped = self._cached.popitem(last=False)
                self._cached_bytes -= dropped.size + _ENTRY_BYTES


def _longest(ranges: Ranges) -> int:
    return max(end - first for first, end in ranges.values())


def _rounds(offsets: Mapping[LogPartition, Iterable[int]]) -> Iterator[Ranges]:
    """Yield ranges that cover all offsets, at most one for each partition at a time."""
    runs = {place: _runs(sorted(numbers)) for place, numbers in offsets.items()}
    while runs:
        yield {place: ranges[0] for place, ranges in runs.items()}
        runs = {place: ranges[1:] for place, ranges in runs.items() if len(ranges) > 1}


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][1] < _NEIGHBOURS:
            runs[-1] = runs[-1][0], offset + 1
        else:
            runs.append((offset, offset + 1))
    return runs
