"""A timeline's bars: a worker's intervals, joined until few enough to be drawn. Pure.

A bar keeps the sums over the intervals that it joins. So a picture made of bars has the same shares
as the intervals. Each part of a worker's time has one colour and one label, in pictures and on the
page.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.scheduler.state.accounts import waits
from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    LOADING,
    RECOMPUTING,
    SWITCHING,
    TRAINING,
    UNDER_FILLED,
    WAITING,
    Interval,
    TimeWindow,
)

_SAMPLE = 16
"""Workers by which the bar count is estimated."""
BarPart = str
"""A category; waiting is split into parts named `waiting: ` and the reason."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A worker's time, with its parts' shares, which sum to 1."""

    start_ms: int
    end_ms: int
    shares: Mapping[BarPart, float]


def waiting_for(reason: str) -> BarPart:
    """Return the part name for waiting with this reason."""
    return f"{WAITING}: {reason}"


COLOURS: dict[BarPart, str] = {
    DECODING: "#2f6fce",
    TRAINING: "#f28e2b",
    RECOMPUTING: "#8e6bbf",
    SWITCHING: "#9aa0a6",
    LOADING: "#f6cf65",
    UNDER_FILLED: "#bcd5f3",
    waiting_for(waits.TURNS): "#e8eaed",
    waiting_for(waits.GROUPS): "#f3ead0",
    waiting_for(waits.BATCH): "#f7dfc8",
    waiting_for(waits.GANG): "#cfe6cd",
    waiting_for(waits.ROLE): "#f6d5dd",
    waiting_for(waits.REPORT): "#f4f5f6",
    WAITING: "#e8eaed",
}
"""From the bottom of a bar to its top; waits are pale."""
LABELS: dict[BarPart, str] = {
    DECODING: "decoding",
    TRAINING: "training",
    RECOMPUTING: "recomputing",
    SWITCHING: "switching role",
    LOADING: "loading or writing weights",
    UNDER_FILLED: "under-filled",
    waiting_for(waits.TURNS): "waits for turns",
    waiting_for(waits.GROUPS): "waits for weights",
    waiting_for(waits.BATCH): "waits for a batch",
    waiting_for(waits.GANG): "waits for its gang",
    waiting_for(waits.ROLE): "waits for a role",
    waiting_for(waits.REPORT): "no report of its rollout",
    WAITING: "waiting",
}
IDLE, SHARES = "all but decoding and training", "a colour is as high as its share of the time"
"""Legends for pictures and page: the meaning of idle, and the heights in a bar."""


def parts(interval: Interval) -> dict[BarPart, float]:
    """Return an interval's time by part, with waiting split by reason."""
    times = dict(interval.by_category())
    waited = times.pop(WAITING, 0.0)
    if interval.waits:
        return times | {waiting_for(reason): share for reason, share in interval.waits.items()}
    return times | ({WAITING: waited} if waited else {})


def spent_by_part(
    intervals: Iterable[Interval], window: TimeWindow
) -> dict[str, dict[BarPart, float]]:
    """Return each worker's device time in the window by part, in milliseconds."""
    spent: defaultdict[str, defaultdict[BarPart, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals:
        if inside_ms := interval.within(window):
            for name, share in parts(interval).items():
                spent[interval.worker][name] += share * inside_ms * interval.devices
    return {worker: dict(times) for worker, times in spent.items()}


def bars(intervals: Iterable[Interval], window: TimeWindow, most: int) -> dict[str, list[Bar]]:
    """Return each worker's bars in the window, about `most` in all."""
    by_worker: defaultdict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        if interval.within(window):
            by_worker[interval.worker].append(interval)
    least_ms = _least_length(list(by_worker.values()), window, most)
    return {
        worker: list(_joined(sorted(row, key=lambda span: span.start_ms), window, least_ms))
        for worker, row in by_worker.items()
    }


def _least_length(workers: Sequence[Sequence[Interval]], window: TimeWindow, most: int) -> int:
    """Return the length below which intervals are joined; 0 if there are few enough intervals."""
    if sum(map(len, workers)) <= most:
        return 0
    sample = workers[:: max(1, len(workers) // _SAMPLE)]
    allowed = most * len(sample) / len(workers)
    low = 0
    high = window[1] - window[0]
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        count = sum(
            sum(1 for _ in _joined(sorted(row, key=lambda span: span.start_ms), window, middle))
            for row in sample
        )
        low, high = (low, middle) if count <= allowed else (middle, high)
    return high


def _joined(intervals: Iterable[Interval], window: TimeWindow, least_ms: int) -> Iterator[Bar]:
    """Yield bars: an interval of at least `least_ms` alone, shorter neighbours together."""
    spent: defaultdict[BarPart, float] = defaultdict(float)
    start_ms = end_ms = 0

    def flush() -> Iterator[Bar]:
        if end_ms > start_ms:
            shares = {name: ms / (end_ms - start_ms) for name, ms in spent.items()}
            yield Bar(start_ms, end_ms, shares)

    for interval in intervals:
        from_ms = max(interval.start_ms, window[0])
        to_ms = min(interval.end_ms, window[1])
        alone = to_ms - from_ms >= least_ms
        if alone or from_ms != end_ms or end_ms - start_ms >= least_ms:
            yield from flush()
            spent.clear()
            start_ms = end_ms = from_ms
        for name, share in parts(interval).items():
            spent[name] += share * (to_ms - from_ms)
        end_ms = to_ms
    yield from flush()
