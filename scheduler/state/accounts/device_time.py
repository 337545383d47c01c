"""Device time by category: intervals, how processes' reports divide them, and sums. Pure.

Nothing else computes an idle share; `docs/scheduling/device-time.md` has the formulas. The
intervals come from `scheduler/state/timeline.py`.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamlessflow.schemas.records import WorkerUsage

DECODING = "decoding"
TRAINING = "training"
SWITCHING = "switching"
LOADING = "loading"
RECOMPUTING = "recomputing"
UNDER_FILLED = "under_filled"
WAITING = "waiting"
CATEGORIES = (DECODING, TRAINING, SWITCHING, LOADING, RECOMPUTING, UNDER_FILLED, WAITING)
"""The categories.

`decoding` is the time that the tokens would have taken in full batches. `under_filled` is the
decoding time beyond that.
"""
ROLLOUT = "rollout"
"""An interval state that is no category; `divided` divides it, like `TRAINING`."""
TimeWindow = tuple[int, int]
"""Start and end in milliseconds since 1970."""
_PROCESS = {ROLLOUT: "rollout", TRAINING: "train"}
"""Process whose reports divide a state."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A time that a worker spent in one state; times in milliseconds since the epoch."""

    worker: str
    state: str
    start_ms: int
    end_ms: int
    devices: int = 1
    shares: Mapping[str, float] = field(default_factory=dict)
    """Parts of the time by category, which sum to 1; empty: all of it, by its state."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Parts of the waiting by reason (`waits.py`), which sum to its share."""

    def by_category(self) -> Mapping[str, float]:
        """Return the parts of its time by category. Rollout without a usage record is waiting."""
        whole = WAITING if self.state == ROLLOUT else self.state
        return self.shares or {whole: 1.0}

    def within(self, window: TimeWindow) -> int:
        """Return how many of its milliseconds lie in the window."""
        return max(0, min(self.end_ms, window[1]) - max(self.start_ms, window[0]))


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Device time by category, in ms: one second on a worker with four devices is 4,000."""

    ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The sum over all categories."""
        return sum(self.ms.values())

    @property
    def useful(self) -> float:
        """The time that tokens take at the full batch's cost, plus training."""
        return self.subtotal(DECODING, TRAINING)

    @property
    def idle_share(self) -> float:
        """1 - useful share; 0 without any time."""
        return 1 - self.useful / self.total if self.total else 0.0

    def subtotal(self, *categories: str) -> float:
        """Return the time in these categories."""
        return sum(self.ms.get(category, 0.0) for category in categories)

    def shares(self) -> dict[str, float]:
        """Return each category's part of the whole; empty without any time."""
        total = self.total
        return {name: self.subtotal(name) / total for name in CATEGORIES} if total else {}


def device_time(intervals: Iterable[Interval], window: TimeWindow) -> dict[str, DeviceTime]:
    """Return each worker's device time in the window.

    A worker's categories sum to its devices times the time in which it was present.
    """
    spent: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals:
        if inside_ms := interval.within(window):
            for category, share in interval.by_category().items():
                spent[interval.worker][category] += share * inside_ms * interval.devices
    return {worker: DeviceTime(dict(ms)) for worker, ms in spent.items()}


def together(times: Iterable[DeviceTime]) -> DeviceTime:
    """Return several workers' device times, summed."""
    summands = list(times)
    return DeviceTime({name: sum(time.subtotal(name) for time in summands) for name in CATEGORIES})


def divided(
    intervals: Iterable[Interval], usage: Mapping[tuple[str, str], Sequence[WorkerUsage]]
) -> Iterator[Interval]:
    """Yield the intervals; the reports cut and divide rollout and training steps.

    `usage`: the reports by worker and process, ordered by their ends. A report counts evenly over
    its stretch: a rollout report over all of it, a training report over its steps.
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


def shares(report: WorkerUsage) -> Mapping[str, float]:
    """Return the shares in a rollout stretch, without its loading."""
    decoding_ms = max(0, report.decoding_ms)
    idle_ms = max(0, report.idle_ms)
    if not decoding_ms:
        return {WAITING: 1.0}
    # Another thread times the passes, so their sum may be a little longer than the activity.
    again_ms = min(max(0, report.recomputing_ms), decoding_ms)
    full_ms = min(max(0, report.full_batch_ms), decoding_ms - again_ms)
    parts = {
        DECODING: full_ms,
        RECOMPUTING: again_ms,
        UNDER_FILLED: decoding_ms - again_ms - full_ms,
        WAITING: idle_ms,
    }
    return {name: ms / (decoding_ms + idle_ms) for name, ms in parts.items() if ms}


def _pieces(
    intervals: Iterable[Interval], usage: Mapping[tuple[str, str], Sequence[WorkerUsage]]
) -> Iterator[tuple[Interval, WorkerUsage | None]]:
    """Yield the intervals, cut at the reports' stretches, each with its report."""
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
        start_ms = max(at_ms, report.from_ms)
        end_ms = min(report.at_ms, interval.end_ms)
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
    """Return the steps' shares in a stretch, where the steps take `steps_ms`."""
    # The clocks of worker and trainer may differ.
    training = min(1.0, max(0, report.computing_ms or 0) / steps_ms)
    return {name: part for name, part in ((TRAINING, training), (WAITING, 1 - training)) if part}
