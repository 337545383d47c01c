"""Trace ids of a waterfall's records, by which a tracing tool finds the spans. Pure."""

from collections.abc import Sequence

from seamlessflow.recorded.trace.row import Row, trace_ids


def rows_of_traces(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the names of the rows whose records each trace id is in, in their order."""
    traces: dict[str, list[str]] = {}
    for row in rows:
        for trace_id in trace_ids(row.records):
            names = traces.setdefault(trace_id, [])
            if row.name not in names:
                names.append(row.name)
    return traces
