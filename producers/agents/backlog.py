"""Backlog of tasks that were read ahead and are not yet started. Pure.

The feed commits a task's offset when the task leaves the backlog, never earlier: tasks that are
only read ahead must go to another process when this one ends.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from infra.kafka.client import Partition, Received


class Backlog:
    """Queue of tasks in the order in which they were read."""

    def __init__(self) -> None:
        self._waiting: deque[Received] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, received: Iterable[Received]) -> None:
        """Append records that were read."""
        self._waiting.extend(received)

    def pop(self, count: int) -> tuple[list[Received], Mapping[Partition, int]]:
        """Remove up to `count` tasks; return them and the offsets to commit before they run."""
        popped = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        return popped, {(item.topic, item.partition): item.offset + 1 for item in popped}

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget the tasks of partitions that Kafka has assigned to another process."""
        gone = set(partitions)
        self._waiting = deque(
            item for item in self._waiting if (item.topic, item.partition) not in gone
        )
