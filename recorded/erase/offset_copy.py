"""Copy of a topic in which every kept record has its old offset.

Some offsets have no record to copy. The record was erased, or compaction or retention removed it,
or the offset ended a transaction. The copy has an empty record there (without key and value), which
all readers pass over. So every reference to an offset stays true. A copy that was cut off goes on
at its target's present end.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from seamlessflow.infra.errors import PartitionsDiffer
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_copy
from seamlessflow.infra.kafka.topics.existing import delete_before
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.interchange.topic_copy import CopyProgress, CopyRefused

ANSWER_S = 30.0
_FLUSH_S = 120.0
_BATCH_RECORDS = 20_000
_BATCH_BYTES = 64_000_000
_LINGER_MS = 5

Keep = Callable[[Received], Raw | None]
"""Function that returns the copy's record, or None for a record that is left out."""
Bounds = Mapping[LogPartition, tuple[int, int]]
"""Each partition's first offset, and the one behind its last record."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A topic and its copy, both with their whole names."""

    source: str
    target: str
    keeps_offsets: bool
    """False for a compacted topic: nothing refers to its offsets, so it is always copied anew."""

    def resume_at(
        self, source: Bounds, target: Mapping[LogPartition, int]
    ) -> dict[LogPartition, int]:
        """Return the offset from which each source partition is still to be copied. Pure.

        Raises `CopyRefused` if the target is ahead of the source.
        """
        starts = {}
        for place, (_, end) in source.items():
            position = target.get((self.target, place[1]), 0) if self.keeps_offsets else 0
            if position > end:
                reason = (
                    f"partition {place[1]} ends at {position} there, at {end} here: other programs "
                    "write there; name another prefix"
                )
                raise CopyRefused(self.source, self.target, reason)
            starts[place] = position
        return starts


def make_target(whole: KafkaSettings, pair: Pair, partitions: int) -> None:
    """Create the target like its source, if it is missing. Raises `PartitionsDiffer`."""
    count = create_copy(whole, pair.source, pair.target)
    if count != partitions:
        raise PartitionsDiffer({pair.source: partitions, pair.target: count})


def copy_with_offsets(
    whole: KafkaSettings,
    pair: Pair,
    bounds: Bounds,
    starts: Mapping[LogPartition, int],
    keep: Keep,
    progress: CopyProgress,
) -> None:
    """Copy the offsets from `starts` to the ends in `bounds`.

    `whole` has no topic prefix. Raises what Kafka's clients raise.
    """
    with closing(Producer(whole, "erase", linger_ms=_LINGER_MS)) as producer:
        writing = _Writing(producer, pair, dict(starts))
        total = sum(max(0, end - starts[place]) for place, (_, end) in bounds.items())
        firsts = {place: max(starts[place], begin) for place, (begin, _) in bounds.items()}
        for item in read_partitions(
            whole,
            list(bounds),
            starts=firsts,
            ends={place: end for place, (_, end) in bounds.items()},
            limit_s=ANSWER_S,
            rules=ReadingRules(decode=_as_it_is),
        ):
            writing.write(item, keep(item))
            if writing.full:
                writing.flush()
                progress(writing.done, total)
        writing.fill_up({place: end for place, (_, end) in bounds.items()})
        writing.flush()
        progress(total, total)
    if pair.keeps_offsets:
        gone = {(pair.target, place[1]): begin for place, (begin, _) in bounds.items() if begin}
        delete_before(whole, gone)


@dataclass
class _Writing:
    """Records on their way to the target."""

    _producer: Producer
    _pair: Pair
    _next: dict[LogPartition, int]
    """Offset of the next record to copy, by source partition."""
    done: int = 0
    _records: int = 0
    _bytes: int = 0
    _times: dict[LogPartition, int] = field(default_factory=dict)

    def write(self, item: Received, kept: Raw | None) -> None:
        """Send the record that replaces `item`, after filling the offsets missing before it."""
        place = item.topic, item.partition
        self._times[place] = item.timestamp_ms
        self._fill(place, item.offset)
        if kept is None:
            self._fill(place, item.offset + 1)
            return
        self._send(place, kept.value, kept.key, item)

    def fill_up(self, ends: Mapping[LogPartition, int]) -> None:
        """Send empty records up to the ends."""
        for place, end in ends.items():
            self._fill(place, end)

    @property
    def full(self) -> bool:
        """True if so many records are on their way that they must be waited for."""
        return self._records >= _BATCH_RECORDS or self._bytes >= _BATCH_BYTES

    def flush(self) -> None:
        """Wait until all is acknowledged."""
        self._producer.flush(_FLUSH_S)
        self._records = self._bytes = 0

    def _fill(self, place: LogPartition, end: int) -> None:
        if not self._pair.keeps_offsets:
            self._next[place] = end
        while self._next[place] < end:
            self._send(place, None, None, None)
            if self.full:
                self.flush()

    def _send(
        self, place: LogPartition, value: bytes | None, key: bytes | None, item: Received | None
    ) -> None:
        self._producer.send_bytes(
            self._pair.target,
            value,
            key,
            place[1],
            item.headers if item else None,
            timestamp_ms=self._times.get(place),
        )
        self._next[place] += 1
        self.done += 1
        self._records += 1
        self._bytes += len(value or b"")


def _as_it_is(value: bytes) -> Raw:
    return Raw(value)


def misplaced(
    pairs: Iterable[Pair], source: Bounds, target: Mapping[LogPartition, int]
) -> list[str]:
    """Return the places whose copy does not end where its source does. Pure."""
    return [
        f"{pair.target}[{number}]"
        for pair in pairs
        if pair.keeps_offsets
        for (topic, number), (_, end) in source.items()
        if topic == pair.source and target.get((pair.target, number)) != end
    ]
