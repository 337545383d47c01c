"""A waterfall's rows: intervals and instants, each with the records that it comes from. Pure.

Times are Kafka's: when a record's writer gave it to its producer, by its machine's clock. A tracing
tool finds the spans by the records' trace ids.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import Record

R = TypeVar("R", bound=Record)
_TRACE = "traceparent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line in the waterfall."""

    name: str
    detail: str = ""
    depth: int = 0
    start_ms: int
    end_ms: int | None
    """None: it has not ended as far as the log shows."""
    records: tuple[Received, ...]
    """Records that it comes from, in the order in which they were given."""

    @property
    def instant(self) -> bool:
        """Return True if it is one moment, not an interval."""
        return len(self.records) == 1 and self.end_ms is not None


def row(
    name: str,
    *records: Received | None,
    detail: str = "",
    depth: int = 0,
    under_way: bool = False,
) -> Row:
    """Return the row from the first to the last of `records` by time; None: a missing record."""
    items = tuple(item for item in records if item is not None)
    times = [item.timestamp_ms for item in items]
    end_ms = None if under_way else max(times)
    return Row(
        name=name, detail=detail, depth=depth, start_ms=min(times), end_ms=end_ms, records=items
    )


def of_kind(items: Iterable[Received], kind: type[R]) -> Iterator[tuple[R, Received]]:
    """Yield the records of one type, each with its place."""
    for item in items:
        if isinstance(item.record, kind):
            yield item.record, item


def first(items: Iterable[Received], *kinds: type[Record]) -> Received | None:
    """Return the first record of one of these types, or None."""
    return next((item for item in items if isinstance(item.record, kinds)), None)


def trace_ids(items: Sequence[Received]) -> list[str]:
    """Return the W3C trace ids in the records' headers, in record order, each once."""
    traces = (
        value.decode("ascii", "replace").split("-")
        for item in items
        for name, value in item.headers
        if name == _TRACE and value is not None
    )
    return list(dict.fromkeys(parts[1] for parts in traces if len(parts) > 3))


def rows_of_traces(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return by trace id the names of the rows whose records have it, in row order."""
    traces: dict[str, list[str]] = {}
    for row in rows:
        for trace_id in trace_ids(row.records):
            names = traces.setdefault(trace_id, [])
            if row.name not in names:
                names.append(row.name)
    return traces
