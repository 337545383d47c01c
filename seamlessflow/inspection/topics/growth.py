"""Growth of lags over the readings of a watch. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seamlessflow.inspection.topics.state import GroupState

READINGS = 10
"""Readings in a row over which a lag must not have fallen."""
_RISES = 2


class LagGrowth:
    """The last readings of each partition's lag."""

    def __init__(self) -> None:
        self._readings: dict[tuple[str, int], deque[int]] = {}

    def apply(self, groups: Iterable[GroupState]) -> None:
        """Take the next reading."""
        for group in groups:
            for place in group.partitions:
                key = group.name, place.number
                self._readings.setdefault(key, deque(maxlen=READINGS)).append(place.lag)

    def of(self, group: str, number: int) -> int:
        """Return by how much the lag of a partition has grown, 0 unless it is growing."""
        readings = tuple(self._readings.get((group, number), ()))
        return readings[-1] - readings[0] if is_growing(readings) else 0


def is_growing(lags: Sequence[int]) -> bool:
    """Return True if the lag never fell over enough readings, and rose more than once.

    A reader that works in batches has a lag that comes and goes, or that rises once and waits.
    """
    steps = list(pairwise(lags))
    rises = sum(before < after for before, after in steps)
    fell = any(before > after for before, after in steps)
    return len(lags) >= READINGS and rises >= _RISES and not fell
