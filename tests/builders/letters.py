"""Dead letters as commands read them, in partition 3."""

from collections.abc import Sequence

from seamlessflow.infra.kafka.client import Received, dead_letter_headers
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.recorded.dead_letters.letters import DeadLetter, RetryMark, letter_or_mark
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers, dead_letters_of

SOURCE_HEADERS = [("traceparent", b"00")]


def on_topic(topic: str, offset: int, value: bytes, headers: Headers) -> DeadLetter | RetryMark:
    """Return what a record with the key `key` on the dead-letter topic is."""
    raw = Raw(value, b"key")
    at_ms = 1_000 * offset
    return letter_or_mark(
        Received(dead_letters_of(topic), 3, offset, at_ms, None, headers, raw), raw
    )


def letter(
    topic: str,
    record: Record | bytes,
    offset: int = 0,
    source: int = 40,
    error: str = "an error",
    headers: Sequence[tuple[str, bytes]] = SOURCE_HEADERS,
) -> DeadLetter:
    """Return a letter at this offset of the dead-letter topic, whose source is at `source`."""
    value = record if isinstance(record, bytes) else encode(record)
    made = on_topic(topic, offset, value, dead_letter_headers(topic, 3, source, error, headers))
    assert isinstance(made, DeadLetter)
    return made
