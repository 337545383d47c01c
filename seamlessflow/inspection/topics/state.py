"""State of a cluster's topics, and growth of the lag in groups that read them. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seamlessflow.infra.kafka.topics.lag import GroupState, PartitionLag

READINGS = 10
"""Readings in a row over which a lag must not have fallen."""
_RISES = 2


@dataclass(frozen=True)
class TopicState:
    """State of one topic."""

    name: str
    partitions: int
    offsets: int
    """Offsets that its partitions keep: records, transactions' marks, and gaps."""
    dead_letters: int
    group: GroupState | None = None
    """The group that commits offsets for it; all other readers keep their own place."""
    records: int | None = None
    """Records that a reading counted, None if none was made."""
    counted: bool = False
    """False if there may be more records than were counted in time."""


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

    def increase(self, group: str, number: int) -> int:
        """Return how much a partition's lag has grown, 0 unless it is growing."""
        readings = tuple(self._readings.get((group, number), ()))
        return readings[-1] - readings[0] if is_growing(readings) else 0


def joined(partitions: Sequence[PartitionLag]) -> list[tuple[Sequence[int], PartitionLag]]:
    """Return the partitions by owner: those without lag together, each other one by itself."""
    together: dict[tuple[str, str, int], list[PartitionLag]] = {}
    for place in partitions:
        alone = place.number if place.lag else -1
        together.setdefault((place.owner, place.host, alone), []).append(place)
    rows = [([place.number for place in places], places[0]) for places in together.values()]
    return sorted(rows, key=lambda row: (row[1].owner, row[1].lag > 0, row[0]))


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in few characters, such as 0-3,7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def is_growing(lags: Sequence[int]) -> bool:
    """Return True if the lag never fell over enough readings, and rose more than once.

    A reader that works in batches has a lag that comes and goes, or that rises once and waits.
    """
    steps = list(pairwise(lags))
    rises = sum(before < after for before, after in steps)
    fell = any(before > after for before, after in steps)
    return len(lags) >= READINGS and rises >= _RISES and not fell
