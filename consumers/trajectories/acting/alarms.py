"""Times at which sessions need attention, in one heap. Only a session's earliest alarm counts."""

import heapq
from collections.abc import Iterator


class Alarms:
    """Alarms by partition and session id; times in milliseconds."""

    def __init__(self) -> None:
        self._set: dict[tuple[int, str], int] = {}
        self._heap: list[tuple[int, int, str]] = []

    def set(self, partition: int, session_id: str, due_ms: int | None) -> None:
        """Set a session's alarm, unless it has an earlier one or `due_ms` is None."""
        place = partition, session_id
        if due_ms is not None and due_ms < self._set.get(place, due_ms + 1):
            self._set[place] = due_ms
            heapq.heappush(self._heap, (due_ms, *place))

    def pop_due(self, now_ms: int, most: int) -> Iterator[tuple[int, str]]:
        """Remove `most` alarms that are due, or fewer; yield their partitions and session ids."""
        while most and self._heap and self._heap[0][0] <= now_ms:
            due_ms, partition, session_id = heapq.heappop(self._heap)
            if self._set.get((partition, session_id)) == due_ms:  # else replaced by an earlier one
                del self._set[partition, session_id]
                most -= 1
                yield partition, session_id

    @property
    def next_ms(self) -> int | None:
        """Time of the earliest alarm, or None if there is none."""
        return self._heap[0][0] if self._heap else None
