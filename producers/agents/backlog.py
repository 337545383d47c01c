"""Tasks that were read and not yet taken, and up to where taken ones reach. Pure.

A task's offset is committed before it runs, never earlier: what is read ahead must go to another
process when this one ends.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from infra.kafka.client import Partition, Received


class Backlog:
    """A queue in the order of reading."""

    def __init__(self) -> None:
        self._waiting: deque[Received] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, received: Iterable[Received]) -> None:
        """Appends what was read."""
        self._waiting.extend(received)

    def take(self, count: int) -> tuple[list[Received], Mapping[Partition, int]]:
        """Up to `count` tasks, and the offsets to commit before they run."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        return taken, {(item.topic, item.partition): item.offset + 1 for item in taken}

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forgets the tasks of partitions that another process has now."""
        gone = set(partitions)
        self._waiting = deque(
            item for item in self._waiting if (item.topic, item.partition) not in gone
        )
