"""A waterfall for the terminal, as rows with a bar for each interval, and as JSON. Pure."""

from collections.abc import Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, rows_of_traces, trace_ids
from seamlessflow.recorded.trace.waterfall import Waterfall

_NARROWEST_BAR = 12
_WIDEST_BAR = 72
_WIDEST_NAME = 36
_TIMES_WIDTH = 24
"""Width that the time columns and the spaces between columns take."""
_MOST_NAMES = 4
_INSTANT = "│"
_INTERVAL = "█"
_ON = "▶"
_COLOURS = ("bold", "cyan", "green", "dim")
"""By depth."""
JsonRow = dict[str, object]


def waterfall_view(waterfall: Waterfall, width: int, offsets: bool) -> Group:
    """Return the waterfall for a console with this width; with `offsets`, each record's place.

    Each part has its own scale, because a turn is short beside the time until a step trains it.
    """
    trained = waterfall.outcome.startswith("trained")
    headline = Text.assemble(
        (waterfall.session_id, "bold"), "  ", (waterfall.outcome, "green" if trained else "yellow")
    )
    parts: list[Text | Padding] = [headline]
    titles = ("from the group to the weights", "within the session")
    for title, part in zip(titles, (waterfall.whole, waterfall.session), strict=True):
        if part:
            table = _table(part, waterfall.start_ms, width)
            parts += [Text(f"\n{title}, {_took(_end(part) - _start(part))}", "dim"), table]
    rows = (*waterfall.whole, *waterfall.session)
    if offsets:
        parts += [Text("\nrecords", "dim"), _places(rows, waterfall.start_ms)]
    parts += [Text(""), *_traces(rows)]
    parts += [Text(f"! {notice}", "yellow") for notice in waterfall.notices]
    return Group(*parts)


def waterfall_json(waterfall: Waterfall) -> JsonRow:
    """Return a waterfall; times are milliseconds since the epoch."""
    traces = rows_of_traces((*waterfall.whole, *waterfall.session))
    return {
        "session_id": waterfall.session_id,
        "outcome": waterfall.outcome,
        "notices": list(waterfall.notices),
        "traces": [{"trace_id": trace_id, "rows": names} for trace_id, names in traces.items()],
        "whole": [_row(row) for row in waterfall.whole],
        "session": [_row(row) for row in waterfall.session],
    }


def _table(rows: Sequence[Row], zero_ms: int, width: int) -> Padding:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    names = max(len(_name(row)) for row in rows)
    table.add_column(no_wrap=True, max_width=_WIDEST_NAME)
    bar = (width - _TIMES_WIDTH - min(names, _WIDEST_NAME)) * 3 // 5
    bar = min(_WIDEST_BAR, max(_NARROWEST_BAR, bar))
    table.add_column(no_wrap=True, min_width=bar)
    table.add_column(overflow="fold")
    for row in rows:
        colour = _COLOURS[min(row.depth, len(_COLOURS) - 1)]
        table.add_row(
            Text(_since(row.start_ms, zero_ms), "dim"),
            Text(_duration(row)),
            Text(_name(row), "" if row.depth else "bold"),
            Text(_bar(row, _start(rows), _end(rows), bar), colour),
            Text(row.detail),
        )
    return Padding(table, (0, 0, 0, 2), expand=False)


def _places(rows: Sequence[Row], zero_ms: int) -> Padding:
    """Return a table of the records that the rows come from, each once."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", style="dim")
    places = {
        (item.topic, item.partition, item.offset): item for row in rows for item in row.records
    }
    for item in sorted(places.values(), key=lambda entry: (entry.timestamp_ms, entry[:3])):
        since = _since(item.timestamp_ms, zero_ms)
        kind = type(item.record).__name__
        trace = ", ".join(trace_ids([item]))
        table.add_row(
            since, kind, item.topic, f"{item.partition}:{item.offset}", Text(trace, "dim")
        )
    return Padding(table, (0, 0, 0, 2), expand=False)


def _name(row: Row) -> str:
    return "  " * row.depth + row.name


def _since(time_ms: int, zero_ms: int) -> str:
    return f"+{(time_ms - zero_ms) / 1000:.3f}"


def _bar(row: Row, start_ms: int, end_ms: int, width: int) -> str:
    """Return a row's bar on a line as wide as `width`, from start to end."""
    scale = (width - 1) / max(1, end_ms - start_ms)
    begin = round((row.start_ms - start_ms) * scale)
    if row.instant:
        return " " * begin + _INSTANT
    if row.end_ms is None:
        return " " * begin + _INTERVAL * (width - 1 - begin) + _ON
    length = max(1, round((row.end_ms - start_ms) * scale) - begin)
    return " " * begin + _INTERVAL * length


def _start(rows: Sequence[Row]) -> int:
    return min(row.start_ms for row in rows)


def _end(rows: Sequence[Row]) -> int:
    times = (item.timestamp_ms for row in rows for item in row.records)
    return max(times, default=_start(rows))


def _duration(row: Row) -> str:
    if row.instant:
        return ""
    return "..." if row.end_ms is None else _took(row.end_ms - row.start_ms)


def _took(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 100_000:
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds // 60_000} min {milliseconds % 60_000 // 1000} s"


def _traces(rows: Sequence[Row]) -> list[Text]:
    traces = rows_of_traces(rows)
    if not traces:
        return [Text("no trace ids: telemetry was off when the records were written", "dim")]
    lines = []
    for trace_id, names in traces.items():
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = ", ".join(names[:_MOST_NAMES])
        lines.append(Text.assemble("trace ", (trace_id, "cyan"), f"  {shown}{more}"))
    return lines


def _row(row: Row) -> JsonRow:
    return {
        "name": row.name,
        "detail": row.detail,
        "depth": row.depth,
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "trace_ids": trace_ids(row.records),
        "records": [_place(item) for item in row.records],
    }


def _place(item: Received) -> JsonRow:
    return {
        "type": type(item.record).__name__,
        "topic": item.topic,
        "partition": item.partition,
        "offset": item.offset,
        "timestamp_ms": item.timestamp_ms,
    }
