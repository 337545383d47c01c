"""Waterfall as JSON, for programs. Pure."""

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, trace_ids
from seamlessflow.recorded.trace.traces import rows_of_traces
from seamlessflow.recorded.trace.waterfall import Waterfall

JsonRow = dict[str, object]


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
