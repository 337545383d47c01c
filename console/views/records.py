"""The page Records: records on all topics, decoded, in a list and each by itself. Pure."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from seamlessflow.console.log.index import LogIndex
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.views.fields import (
    MOST_CHARACTERS,
    FieldText,
    gist_of,
    readable_bytes,
    record_fields,
)
from seamlessflow.console.views.search import FoundRecords
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.recorded.dead_letters.letters import DeadLetter, RetryMark, letter_or_mark
from seamlessflow.recorded.retrain.recorded_run import changed_settings, settings_by_path
from seamlessflow.schemas.records import LineageStarted


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting in which a trainer differs from the previous one."""

    name: str
    before: str | None
    """Value; None if that trainer has no such setting."""
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLine:
    """A record with its fields."""

    moment: str
    """Place on the log, by which a link names it."""
    topic: str
    partition: int
    offset: int
    at_ms: int
    type: str
    key: str | None
    size: int
    gist: str
    readable: bool
    headers: tuple[tuple[str, str], ...]
    fields: tuple[FieldText, ...]
    retry: str = ""
    """Command that sends a dead letter again; empty for other records."""
    session_id: str = ""
    """Session that the record is about."""
    source: str = ""
    """Moment of the record that became this dead letter."""
    changes: tuple[SettingChange, ...] | None = None
    """Settings that a trainer's start changed; None for a policy's first trainer, and on all pages
    except the record's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCount:
    """A topic's record count."""

    topic: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReading:
    """Progress of a search for a text."""

    looked: int
    """Records that fit all else and were read."""
    gone: int
    last: Moment | None
    """Place of the last record that was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsPage:
    """Records that fit a query, the newest first."""

    matching: int
    looked: int
    """Records that were read for the text that is searched for; 0 without one."""
    shown: int
    older: str
    """Moment from which a list of older records goes on; empty if there are none."""
    gone: int
    """Records that the index has and that Kafka has since deleted."""
    lines: tuple[RecordLine, ...]
    topics: tuple[TopicCount, ...]


def records_page(
    index: LogIndex,
    cut: Mapping[tuple[str, int], int],
    search: FoundRecords,
    items: Iterable[tuple[Received, Received]],
    run: str,
    reading: TextReading | None = None,
) -> RecordsPage:
    """Return the page for a search; `items` holds each record raw and decoded.

    `reading`: how far the records were read for a text.
    """
    lines = tuple(record_line(raw, decoded, run) for raw, decoded in items)
    last = search.last if reading is None else reading.last
    return RecordsPage(
        matching=search.matching,
        looked=0 if reading is None else reading.looked,
        shown=len(lines),
        older=str(last) if search.more and last is not None else "",
        gone=len(search.places) - len(lines) if reading is None else reading.gone,
        lines=lines,
        topics=topic_counts(index, cut),
    )


def topic_counts(index: LogIndex, cut: Mapping[tuple[str, int], int]) -> tuple[TopicCount, ...]:
    """Return the topics that have records, ordered by name."""
    counts: dict[str, list[int]] = {}
    for (topic, _), rows in sorted(cut.items()):
        counts.setdefault(topic, []).append(rows)
    return tuple(
        TopicCount(topic=topic, partitions=len(rows), records=sum(rows))
        for topic, rows in counts.items()
        if sum(rows)
    )


def record_line(
    raw: Received, decoded: Received, run: str, most: int = MOST_CHARACTERS
) -> RecordLine:
    """Return a record's line; `run` is the command option that names the run."""
    moment = Moment(raw.topic, raw.partition, raw.offset)
    line = RecordLine(
        moment=str(moment),
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        at_ms=raw.timestamp_ms,
        type=_type(decoded),
        key=_key(raw),
        size=raw.size,
        gist=gist_of(decoded.record),
        readable=not isinstance(decoded.record, Unreadable | Raw),
        headers=tuple((name, readable_bytes(value or b"")) for name, value in raw.headers),
        fields=_fields(raw, decoded, most),
        session_id=getattr(decoded.record, "session_id", ""),
    )
    return line if not raw.topic.endswith(".dlq") else _letter(line, raw, run)


def setting_changes(
    before: LineageStarted | None, after: LineageStarted
) -> tuple[SettingChange, ...] | None:
    """Return the settings in which a trainer differs from the previous one.

    None without a previous trainer, or if the log lacks the settings of either.
    """
    if before is None or not before.settings or not after.settings:
        return None
    old = settings_by_path(before)
    new = settings_by_path(after)
    return tuple(
        SettingChange(name, _value(old, name), _value(new, name))
        for name in changed_settings(before, after)
    )


def _value(settings: Mapping[str, Any], name: str) -> str | None:
    return str(settings[name]) if name in settings else None


def _fields(raw: Received, decoded: Received, most: int) -> tuple[FieldText, ...]:
    fields = record_fields(decoded.record, most)
    if isinstance(decoded.record, Unreadable) and isinstance(raw.record, Raw):
        return (*fields, *record_fields(raw.record, most))
    return fields


def _letter(line: RecordLine, raw: Received, run: str) -> RecordLine:
    if not isinstance(raw.record, Raw):
        return line
    letter = letter_or_mark(raw, raw.record)
    if isinstance(letter, RetryMark):
        text = f"the letter at {letter.letter} was retried, and is at {letter.sent_to} now"
        return replace(line, type="(retried)", gist=text)
    source = "" if letter.source is None else str(_source(letter))
    words = ["seamlessflow", "dlq", "retry", letter.topic, str(letter.partition)]
    retry = shlex.join([*words, str(letter.source)]) + run if source else ""
    return replace(line, type="(dead letter)", gist=letter.error, retry=retry, source=source)


def _source(letter: DeadLetter) -> Moment:
    return Moment(letter.topic, letter.partition, letter.source or 0)


def _type(decoded: Received) -> str:
    if isinstance(decoded.record, Unreadable):
        return "(unreadable)"
    return "(bytes)" if isinstance(decoded.record, Raw) else type(decoded.record).__name__


def _key(raw: Received) -> str | None:
    if isinstance(raw.record, Raw) and raw.record.key is not None:
        return readable_bytes(raw.record.key)
    return raw.key
