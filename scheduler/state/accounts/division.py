"""The division of time in rollout by what the rollout processes measured: `WorkerUsage`. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.state.accounts.device_time import (
    DECODING,
    RECOMPUTING,
    ROLLOUT,
    UNDER_FILLED,
    WAITING,
    Interval,
)
from schemas.records import WorkerUsage


def divided(
    intervals: Iterable[Interval], usage: Mapping[str, Sequence[WorkerUsage]]
) -> Iterator[Interval]:
    """Yield the intervals, those of rollout cut and divided as the reports say.

    `usage`: the reports of each worker's rollout process, in the order of their ends. A report
    counts for its stretch evenly.
    """
    ends = {worker: [of.at_ms for of in reports] for worker, reports in usage.items()}
    for interval in intervals:
        reports = usage.get(interval.worker, ())
        if interval.state != ROLLOUT or not reports:
            yield interval
            continue
        first = bisect_right(ends[interval.worker], interval.start_ms)
        yield from _cut(interval, reports, first)


def _cut(interval: Interval, reports: Sequence[WorkerUsage], first: int) -> Iterator[Interval]:
    at_ms = interval.start_ms
    for number in range(first, len(reports)):
        report = reports[number]
        start_ms, end_ms = max(at_ms, report.from_ms), min(report.at_ms, interval.end_ms)
        if end_ms <= start_ms:
            if report.from_ms >= interval.end_ms:
                break
            continue
        if start_ms > at_ms:
            yield replace(interval, start_ms=at_ms, end_ms=start_ms)
        yield replace(interval, start_ms=start_ms, end_ms=end_ms, shares=shares(report))
        at_ms = end_ms
    if at_ms < interval.end_ms:
        yield replace(interval, start_ms=at_ms)


def shares(report: WorkerUsage) -> Mapping[str, float]:
    """Return how a stretch in rollout divides, without its loading."""
    decoding_ms, idle_ms = max(0, report.decoding_ms), max(0, report.idle_ms)
    if not decoding_ms:
        return {WAITING: 1.0}
    # Passes are timed on another thread than the activity, so their sum may be a little longer.
    again_ms = min(max(0, report.recomputing_ms), decoding_ms)
    full_ms = min(max(0, report.full_batch_ms), decoding_ms - again_ms)
    parts = {
        DECODING: full_ms,
        RECOMPUTING: again_ms,
        UNDER_FILLED: decoding_ms - again_ms - full_ms,
        WAITING: idle_ms,
    }
    return {name: ms / (decoding_ms + idle_ms) for name, ms in parts.items() if ms}
