"""Waterfall as JSON, for programs. Pure."""

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, trace_ids
from seamlessflow.recorded.trace.traces import rows_of_traces
from seamlessflow.recorded.trace.waterfall import Waterfall

JsonRow = dict[str, object]


def waterfall_json(found: Waterfall) -> JsonRow:
    """Return a waterfall; times are milliseconds since the epoch."""
    traces = rows_of_traces((*found.whole, *found.session))
    return {
        "session_id": found.session_id,
        "outcome": found.outcome,
        "notices": list(found.notices),
        "traces": [{"trace_id": trace_id, "rows": names} for trace_id, names in traces.items()],
        "whole": [_row(one) for one in found.whole],
        "session": [_row(one) for one in found.session],
    }


def _row(one: Row) -> JsonRow:
    return {
        "name": one.name,
        "detail": one.detail,
        "depth": one.depth,
        "start_ms": one.start_ms,
        "end_ms": one.end_ms,
        "trace_ids": trace_ids(one.records),
        "records": [_place(item) for item in one.records],
    }


def _place(item: Received) -> JsonRow:
    return {
        "type": type(item.record).__name__,
        "topic": item.topic,
        "partition": item.partition,
        "offset": item.offset,
        "timestamp_ms": item.timestamp_ms,
    }
