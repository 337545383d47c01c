"""Search for a text in records' bytes, the newest first, for a bounded time.

The index has no text, so records are read again from Kafka. If the time runs out, the next search
goes on behind this one's last record.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import orjson

from seamlessflow.console.log.index import Cut
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.records import TextReading
from seamlessflow.console.views.search import FoundRecords, RecordQuery, found_records
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Raw

MOST_S = 2.0
_AT_ONCE = 500


def text_forms(text: str) -> Sequence[bytes]:
    """Return the bytes that a text may have on the log: as it is, and as JSON."""
    plain = text.encode(errors="surrogateescape")
    written = orjson.dumps(plain.decode(errors="replace"))[1:-1]
    return list(dict.fromkeys((plain.lower(), written.lower())))


def has_text(item: Received, forms: Sequence[bytes]) -> bool:
    """Return whether a raw record has one of these text forms."""
    if not isinstance(item.record, Raw):
        return False
    value = item.record.value.lower()
    return any(form in value for form in forms)


def records_with_text(
    run_log: RunLog, cut: Cut, query: RecordQuery, most_s: float = MOST_S
) -> tuple[FoundRecords, list[Received], TextReading]:
    """Return the newest records in a cut that fit a query and its text, and how far it read.

    Raises `MomentNotOnLog` and what the log's lookup raises.
    """
    forms = text_forms(query.text)
    until_s = time.monotonic() + most_s
    fitting: list[Received] = []
    reading = TextReading(looked=0, gone=0, last=query.before)
    more = True
    while more and len(fitting) < query.count:
        asked = replace(query, before=reading.last, count=_AT_ONCE)
        search = found_records(run_log.index, cut, asked)
        items = run_log.records(search.places)
        read = _up_to(items, forms, query.count - len(fitting))
        fitting += [item for item in read if has_text(item, forms)]
        cut_short = len(read) < len(items)
        more = search.more or cut_short
        reading = TextReading(
            looked=reading.looked + len(read),
            gone=reading.gone + len(search.places) - len(items),
            last=_place(read[-1]) if cut_short else search.last or reading.last,
        )
        if time.monotonic() > until_s:
            break
    places = tuple(((item.topic, item.partition), item.offset) for item in fitting)
    return FoundRecords(places=places, matching=len(fitting), more=more), fitting, reading


def _up_to(items: Sequence[Received], forms: Sequence[bytes], count: int) -> Sequence[Received]:
    """Return the first of these records, up to the last of `count` that have the text."""
    fitting = [number for number, item in enumerate(items, 1) if has_text(item, forms)]
    return items if len(fitting) < count else items[: fitting[count - 1]]


def _place(item: Received) -> Moment:
    return Moment(item.topic, item.partition, item.offset)
