"""Dead letters as they stand on `<topic>.dlq`, and the marks for those that were retried.

A mark is a record without a value behind its letter, in the same partition. It lasts as long as the
letter, and needs no file. Readers of garbage (`infra/kafka/dead_letters.py`) pass over it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seamlessflow.infra.kafka.client import SOURCE_HEADER, Received
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import LETTERED, Headers, dead_letters_of

RETRIED_LETTER = "retried-letter"
RETRIED_TO = "retried-to"
_SUFFIX = dead_letters_of("")
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record on a dead-letter topic. `source` is None if another program wrote it."""

    topic: str
    """Topic that it came from."""
    partition: int
    offset: int
    """Its own offset among the dead letters."""
    timestamp_ms: int
    source: int | None
    """The record's offset on its own topic, in the same partition."""
    error: str
    key: bytes | None
    value: bytes
    headers: Headers
    """The source record's headers."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Return topic, partition and offset among the dead letters."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class RetryMark:
    """A mark that a letter was retried."""

    topic: str
    partition: int
    letter: int
    """The letter's offset, in the same partition."""
    timestamp_ms: int
    sent_to: int
    """Offset that the retried record got on its own topic; -1 if the mark does not say."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Return its letter's place."""
        return self.topic, self.partition, self.letter


def mark_headers(letter: DeadLetter, sent_to: int) -> list[tuple[str, bytes]]:
    """Return the headers for a letter's mark; `sent_to`: the retried record's offset."""
    return [(RETRIED_LETTER, b"%d" % letter.offset), (RETRIED_TO, b"%d" % sent_to)]


def read_letters(
    settings: KafkaSettings, topics: Iterable[str], partition: int | None = None
) -> Iterator[DeadLetter | RetryMark]:
    """Yield the present dead letters for these topics, or for one partition.

    A mark comes behind its letter. Raises what `read_partitions` raises.
    """
    counts = partition_counts(settings)
    places = [
        (name, number)
        for name in map(dead_letters_of, topics)
        for number in range(counts.get(settings.topic_prefix + name, 0))
        if partition in (None, number)
    ]
    for item in read_partitions(settings, places, rules=ReadingRules(decode=Raw)):
        if isinstance(item.record, Raw):
            yield letter_or_mark(item, item.record)


def letter_or_mark(item: Received, raw: Raw) -> DeadLetter | RetryMark:
    """Return a record on a dead-letter topic as a letter or a mark."""
    topic = item.topic.removesuffix(_SUFFIX)
    headers = dict(item.headers)
    retried = _number(headers.get(RETRIED_LETTER))
    if retried is not None:
        sent_to = _number(headers.get(RETRIED_TO))
        to = -1 if sent_to is None else sent_to
        return RetryMark(topic, item.partition, retried, item.timestamp_ms, to)
    return DeadLetter(
        topic=topic,
        partition=item.partition,
        offset=item.offset,
        timestamp_ms=item.timestamp_ms,
        source=_number(headers.get("source-offset")),
        error=(headers.get("error") or b"").decode(errors="replace"),
        key=raw.key,
        value=raw.value,
        headers=[
            (name.removeprefix(SOURCE_HEADER), value)
            for name, value in item.headers
            if name.startswith(SOURCE_HEADER)
        ],
    )


def decoded_letter(letter: DeadLetter) -> Record:
    """Return a letter's record. Raises `UndecodableRecord` if it is not readable on its topic.

    As for all readers, a key that is not UTF-8 is also garbage.
    """
    record = decode(letter.value)
    if not isinstance(record, LETTERED[letter.topic].records):
        raise UndecodableRecord(f"{type(record).__name__} does not belong on {letter.topic}")
    try:
        (letter.key or b"").decode()
    except UnicodeDecodeError as error:
        raise UndecodableRecord(f"its key is not UTF-8: {error}") from error
    return record


def _number(value: bytes | None) -> int | None:
    digits = value or b""
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None
