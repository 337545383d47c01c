"""Measurement of the ends of `requests`, once a second and when a deadline waits for it.

Main thread only; no method blocks. At most one measurement is under way.
"""

from collections.abc import Callable, Mapping
from functools import partial

from seamlessflow.consumers.trajectories.bus.bounds_reader import Bounds
from seamlessflow.consumers.trajectories.bus.inbox import ManagerInbox
from seamlessflow.consumers.trajectories.bus.readers import Readers
from seamlessflow.consumers.trajectories.sessions.partition import Partition

_EVERY_MS = 1_000


class RequestEnds:
    """The ends of the partitions that this manager owns."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        readers: Readers,
        inbox: ManagerInbox,
        clock: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._readers = readers
        self._inbox = inbox
        self._clock = clock
        self._under_way = False
        self._next_ms = 0

    def want(self) -> None:
        """Measure in the next round."""
        self._next_ms = 0

    def look(self) -> None:
        """Begin a measurement if one is due. Called once a round."""
        now_ms = self._clock()
        owned = [partition for partition in self._partitions.values() if partition.owned]
        if self._under_way or not owned or now_ms < self._next_ms:
            return
        self._under_way, self._next_ms = True, now_ms + _EVERY_MS
        numbers = [partition.number for partition in owned]
        # Runs on another thread; `_measured` then runs on the main thread.
        self._readers.ask_for_bounds(
            numbers, lambda bounds: self._inbox.post(partial(self._measured, owned, now_ms, bounds))
        )

    def _measured(self, asked: list[Partition], asked_ms: int, bounds: Bounds) -> None:
        self._under_way = False
        for partition in asked:
            # Not for a partition that was assigned again meanwhile, which is another object.
            if partition.number in bounds and self._partitions.get(partition.number) is partition:
                start, end = bounds[partition.number]
                partition.measured(start, end, asked_ms, self._clock())
