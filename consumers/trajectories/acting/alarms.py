"""The alarm clock of all sessions: of each its earliest alarm counts."""

import heapq
from collections.abc import Iterator


class Alarms:
    """Times in milliseconds at which something has to be done about a session."""

    def __init__(self) -> None:
        self._set: dict[tuple[int, str], int] = {}
        self._heap: list[tuple[int, int, str]] = []

    def set(self, partition: int, session_id: str, due_ms: int | None) -> None:
        """Without effect where the session has an earlier one, or none is needed."""
        place = partition, session_id
        if due_ms is not None and due_ms < self._set.get(place, due_ms + 1):
            self._set[place] = due_ms
            heapq.heappush(self._heap, (due_ms, *place))

    def pop_due(self, now_ms: int) -> Iterator[tuple[int, str]]:
        """Takes out those that are due: partition and session."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, partition, session_id = heapq.heappop(self._heap)
            if self._set.get((partition, session_id)) == due_ms:  # else an earlier one took over
                del self._set[partition, session_id]
                yield partition, session_id

    @property
    def next_ms(self) -> int | None:
        """When the next one is due, if any."""
        return self._heap[0][0] if self._heap else None
