"""Growth of lags over the readings of a watch. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seamlessflow.inspection.topics.state import GroupState

_READINGS = 5
_FEWEST = 3


class LagGrowth:
    """The last readings of each partition's lag."""

    def __init__(self) -> None:
        self._readings: dict[tuple[str, int], deque[int]] = {}

    def apply(self, groups: Iterable[GroupState]) -> None:
        """Take the next reading."""
        for group in groups:
            for place in group.partitions:
                key = group.name, place.number
                self._readings.setdefault(key, deque(maxlen=_READINGS)).append(place.lag)

    def of(self, group: str, number: int) -> int:
        """Return by how much the lag of a partition has grown, 0 unless it is growing."""
        readings = tuple(self._readings.get((group, number), ()))
        return readings[-1] - readings[0] if is_growing(readings) else 0


def is_growing(lags: Sequence[int]) -> bool:
    """Return True if the lag never fell over enough readings, and is larger than at first.

    A lag that comes and goes is that of a reader that works in batches.
    """
    steps = list(pairwise(lags))
    return len(lags) >= _FEWEST and lags[-1] > lags[0] and all(a <= b for a, b in steps)
