"""Dead letters by source topic and error, and a single letter in full, for the terminal. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.dead_letters.letters import DeadLetter, RetryMark, decoded_letter
from seamlessflow.recorded.show.record_view import records_view
from seamlessflow.schemas.codec import UndecodableRecord
from seamlessflow.schemas.topics import LETTERED

_MOST_PLACES = 5
_MOST_ERROR = 100
_MOST_BYTES = 1_024
_ROW = 16
_FOREIGN = "(written by another program)"


@dataclass(slots=True)
class ErrorCount:
    """Letters from one topic with the same error."""

    first_ms: int
    last_ms: int = 0
    letters: int = 0
    retried: int = 0
    sources: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Offsets on the source topic by partition."""


def counted(records: Iterable[DeadLetter | RetryMark]) -> dict[tuple[str, str], ErrorCount]:
    """Return the letters by topic and error, in the order in which they were found."""
    counts: dict[tuple[str, str], ErrorCount] = {}
    kinds: dict[tuple[str, int, int], tuple[str, str]] = {}
    marked: set[tuple[str, int, int]] = set()
    for record in records:
        if isinstance(record, RetryMark):
            if record.place in kinds and record.place not in marked:
                marked.add(record.place)
                counts[kinds[record.place]].retried += 1
            continue
        kind = record.topic, _FOREIGN if record.source is None else record.error
        kinds[record.place] = kind
        count = counts.setdefault(kind, ErrorCount(record.timestamp_ms))
        count.first_ms = min(count.first_ms, record.timestamp_ms)
        count.last_ms = max(count.last_ms, record.timestamp_ms)
        count.letters += 1
        if record.source is not None:
            count.sources[record.partition].append(record.source)
    return counts


def list_table(counts: dict[tuple[str, str], ErrorCount]) -> Table:
    """Return a row for each topic and error, the oldest first within a topic."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("topic", "letters", "retried", "first", "last", "source places", "error"):
        right = name in ("letters", "retried")
        table.add_column(name, justify="right" if right else "left", no_wrap=name == "topic")
    in_order = sorted(counts.items(), key=lambda entry: (entry[0][0], entry[1].first_ms))
    for (topic, error), count in in_order:
        table.add_row(
            topic,
            str(count.letters),
            str(count.retried or ""),
            moment(count.first_ms),
            moment(count.last_ms),
            places(count.sources),
            Text(error if len(error) <= _MOST_ERROR else f"{error[:_MOST_ERROR]}..."),
        )
    return table


def places(sources: dict[int, list[int]]) -> str:
    """Return partitions and offsets, for example `3: 7-9 12`; the first five for each partition."""
    return "; ".join(
        f"{partition}: {_ranges(sorted(set(offsets)))}"
        for partition, offsets in sorted(sources.items())
    )


def moment(at_ms: int) -> str:
    """Return a UTC time to the second."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def letter_view(letter: DeadLetter, marks: Sequence[RetryMark]) -> Group:
    """Return a letter in full: where it came from, and its record or its bytes."""
    table = Table(box=None, show_header=False, pad_edge=False)
    source = "?" if letter.source is None else letter.source
    table.add_row("source", f"{letter.topic} {letter.partition} {source}")
    table.add_row("dead letter", f"{letter.topic}.dlq {letter.partition} {letter.offset}")
    table.add_row("written", f"{moment(letter.timestamp_ms)} UTC")
    table.add_row("error", Text(letter.error))
    table.add_row("key", Text("none" if letter.key is None else repr(letter.key)))
    for name, value in letter.headers:
        table.add_row("header", Text(f"{name}: {value!r}"))
    for mark in marks:
        table.add_row("retried", f"{moment(mark.timestamp_ms)} UTC, now at offset {mark.sent_to}")
    return Group(table, Text(), _content(letter))


def hex_dump(value: bytes, most: int = _MOST_BYTES) -> str:
    """Return offsets, bytes and characters for the first `most` bytes, 16 a line."""
    lines = []
    for start in range(0, min(len(value), most), _ROW):
        row = value[start : start + _ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * _ROW}} {shown}")
    if len(value) > most:
        lines.append(f"... {len(value) - most} more bytes")
    return "\n".join(lines)


def _content(letter: DeadLetter) -> RenderableType:
    try:
        record = decoded_letter(letter)
    except UndecodableRecord as error:
        reason = Text(f"cannot be decoded: {error}; {len(letter.value)} bytes:", "yellow")
        return Group(reason, Text(hex_dump(letter.value)))
    key = None if letter.key is None else letter.key.decode()
    source = -1 if letter.source is None else letter.source
    item = Received(
        LETTERED[letter.topic].name,
        letter.partition,
        source,
        letter.timestamp_ms,
        key,
        letter.headers,
        record,
    )
    return Group(Text("can be decoded now:", "green"), records_view([item], None))


def _ranges(offsets: list[int]) -> str:
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], offset]
        else:
            runs.append([offset, offset])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = ["..."] if len(shown) > _MOST_PLACES else []
    return " ".join([*shown[:_MOST_PLACES], *more])
