"""The division of time in rollout and in steps by what processes measured: `WorkerUsage`. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    RECOMPUTING,
    ROLLOUT,
    TRAINING,
    UNDER_FILLED,
    WAITING,
    Interval,
)
from seamlessflow.schemas.records import WorkerUsage

_PROCESS = {ROLLOUT: "rollout", TRAINING: "train"}
"""Process whose reports divide a state."""


def divided(
    intervals: Iterable[Interval], usage: Mapping[tuple[str, str], Sequence[WorkerUsage]]
) -> Iterator[Interval]:
    """Yield the intervals, those of rollout and of steps cut and divided as the reports say.

    `usage`: the reports by worker and process, in the order of their ends. A report counts for its
    stretch evenly: one of rollout for all of it, one of training for the steps in it.
    """
    pieces = list(_pieces(intervals, usage))
    steps_ms = Counter[WorkerUsage]()
    for piece, report in pieces:
        if report is not None and piece.state == TRAINING:
            steps_ms[report] += piece.end_ms - piece.start_ms
    for piece, report in pieces:
        if report is None:
            yield piece
        elif piece.state == ROLLOUT:
            yield replace(piece, shares=shares(report))
        else:
            yield replace(piece, shares=_own_part(report, steps_ms[report]))


def _pieces(
    intervals: Iterable[Interval], usage: Mapping[tuple[str, str], Sequence[WorkerUsage]]
) -> Iterator[tuple[Interval, WorkerUsage | None]]:
    """Yield the intervals, cut by the stretches of the reports, each with its report."""
    ends = {key: [report.at_ms for report in reports] for key, reports in usage.items()}
    for interval in intervals:
        key = interval.worker, _PROCESS.get(interval.state, "")
        if reports := usage.get(key):
            yield from _cut(interval, reports, bisect_right(ends[key], interval.start_ms))
        else:
            yield interval, None


def _cut(
    interval: Interval, reports: Sequence[WorkerUsage], first: int
) -> Iterator[tuple[Interval, WorkerUsage | None]]:
    at_ms = interval.start_ms
    for number in range(first, len(reports)):
        report = reports[number]
        start_ms, end_ms = max(at_ms, report.from_ms), min(report.at_ms, interval.end_ms)
        if end_ms <= start_ms:
            if report.from_ms >= interval.end_ms:
                break
            continue
        if start_ms > at_ms:
            yield replace(interval, start_ms=at_ms, end_ms=start_ms), None
        yield replace(interval, start_ms=start_ms, end_ms=end_ms), report
        at_ms = end_ms
    if at_ms < interval.end_ms:
        yield replace(interval, start_ms=at_ms), None


def _own_part(report: WorkerUsage, steps_ms: int) -> Mapping[str, float]:
    """Return how the steps of a stretch divide, which take so long in it."""
    # The clocks of worker and trainer may differ.
    training = min(1.0, max(0, report.computing_ms or 0) / steps_ms)
    return {name: part for name, part in ((TRAINING, training), (WAITING, 1 - training)) if part}


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
