"""Device time by category, in intervals and summed. Pure.

Nothing else computes an idle share; `docs/scheduling/device-time.md` has the formulas. The
intervals come from `scheduler/state/timeline.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DECODING, TRAINING, SWITCHING, LOADING = "decoding", "training", "switching", "loading"
RECOMPUTING, UNDER_FILLED, WAITING = "recomputing", "under_filled", "waiting"
CATEGORIES = (DECODING, TRAINING, SWITCHING, LOADING, RECOMPUTING, UNDER_FILLED, WAITING)
"""`decoding` is the time that the tokens would have taken in full batches; `under_filled` is what
decoding took beyond that."""
ROLLOUT = "rollout"
"""A state of intervals that is no category: `division.py` divides it, and `TRAINING`."""

Window = tuple[int, int]
"""Start and end in milliseconds since 1970."""


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
        """Return the parts of its time by category. Rollout of which no usage tells is waiting."""
        whole = WAITING if self.state == ROLLOUT else self.state
        return self.shares or {whole: 1.0}

    def within(self, window: Window) -> int:
        """Return how many of its milliseconds lie in the window."""
        return max(0, min(self.end_ms, window[1]) - max(self.start_ms, window[0]))


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Device time by category, in milliseconds: one second of a worker of four devices is 4,000."""

    ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Return the sum of all categories."""
        return sum(self.ms.values())

    @property
    def useful(self) -> float:
        """Return the time of tokens at the full batch's cost, and of training."""
        return self.of(DECODING, TRAINING)

    @property
    def idle_share(self) -> float:
        """Return 1 - useful share; 0 without any time."""
        return 1 - self.useful / self.total if self.total else 0.0

    def of(self, *categories: str) -> float:
        """Return the time of these categories."""
        return sum(self.ms.get(category, 0.0) for category in categories)

    def shares(self) -> dict[str, float]:
        """Return the part of each category in the whole; empty without any time."""
        total = self.total
        return {name: self.of(name) / total for name in CATEGORIES} if total else {}


def device_time(intervals: Iterable[Interval], window: Window) -> dict[str, DeviceTime]:
    """Return the device time of each worker in the window.

    The categories of a worker sum to its devices times the time in which it was there.
    """
    spent: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals:
        if inside_ms := interval.within(window):
            for category, share in interval.by_category().items():
                spent[interval.worker][category] += share * inside_ms * interval.devices
    return {worker: DeviceTime(dict(ms)) for worker, ms in spent.items()}


def together(times: Iterable[DeviceTime]) -> DeviceTime:
    """Return the sum of the device times of several workers."""
    summands = list(times)
    return DeviceTime({name: sum(time.of(name) for time in summands) for name in CATEGORIES})
