"""Backlog of tasks: those read ahead, and those whose episodes are under way. Pure.

The feed commits each partition's progress, which is two offsets. All tasks before `ended` are over.
The tasks from `begun` on were not started, so they belong to the next process. The process that
committed the progress started those in between. After a crash, a successor closes their sessions.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from seamlessflow.infra.kafka.client import LogPartition, Received


class Progress(NamedTuple):
    """A partition's progress: the offset of the next task to end, and of the next to begin."""

    ended: int
    begun: int


class Place(NamedTuple):
    """A task's place in the log."""

    partition: LogPartition
    offset: int


def place_of(item: Received) -> Place:
    """Return a record's place."""
    return Place((item.topic, item.partition), item.offset)


@dataclass(slots=True)
class _Owned:
    """State of a partition that this process owns."""

    popped: int
    """Offset of the next task to start here."""
    inherited: int
    """A predecessor started the tasks before this offset."""

    def progress(self, running: Iterable[int]) -> Progress:
        ended = min([*running, self.popped])
        return Progress(ended, max(self.popped, self.inherited))


class Backlog:
    """Queue of tasks in reading order, and the progress of each partition."""

    def __init__(self) -> None:
        self._waiting: deque[Received] = deque()
        self._owned: dict[LogPartition, _Owned] = {}
        self._running: defaultdict[LogPartition, set[int]] = defaultdict(set)
        """Offsets of tasks under way here, also in partitions that went to another process."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add_partition(self, partition: LogPartition, left: Progress) -> None:
        """Begin with a partition that its earlier owner left with this progress."""
        self._owned[partition] = _Owned(left.ended, left.begun)
        # This process may have owned it before. Tasks handed over as ended do not come again.
        self._running[partition] = {
            offset for offset in self._running[partition] if offset >= left.ended
        }

    def add(self, received: Iterable[Received]) -> None:
        """Append records that were read."""
        self._waiting.extend(received)

    def pop(self, count: int) -> tuple[list[Received], Mapping[LogPartition, Progress]]:
        """Remove up to `count` tasks; return them and the progress to commit before they run.

        Tasks that run here already, whose partition came back, are removed and not returned.
        """
        popped: list[Received] = []
        while self._waiting and len(popped) < count:
            item = self._waiting.popleft()
            partition, offset = place_of(item)
            self._owned[partition].popped = offset + 1
            if offset not in self._running[partition]:
                self._running[partition].add(offset)
                popped.append(item)
        return popped, self.progress({place_of(item).partition for item in popped})

    def put_back(self, popped: Iterable[Received]) -> None:
        """Undo a `pop`: its tasks were not started."""
        for item in reversed(list(popped)):
            partition, offset = place_of(item)
            self._running[partition].remove(offset)
            self._owned[partition].popped = offset
            self._waiting.appendleft(item)

    def was_begun(self, item: Received) -> bool:
        """Return whether a predecessor started the task."""
        partition, offset = place_of(item)
        return offset < self._owned[partition].inherited

    def end(self, places: Iterable[Place]) -> set[LogPartition]:
        """Note that these tasks are over; return the partitions whose progress changed."""
        changed = set()
        for place in places:
            if place.offset in self._running[place.partition]:
                self._running[place.partition].remove(place.offset)
                changed.add(place.partition)
        return changed & self._owned.keys()

    def progress(self, partitions: Iterable[LogPartition]) -> Mapping[LogPartition, Progress]:
        """Return the progress of those partitions that this process owns."""
        return {
            partition: self._owned[partition].progress(self._running[partition])
            for partition in partitions
            if partition in self._owned
        }

    def drop(self, partitions: Iterable[LogPartition]) -> Mapping[LogPartition, Progress]:
        """Forget partitions that go to another process; return their progress.

        Episodes under way here go on, so the next owner counts their tasks as over.
        """
        gone = {
            partition: self._owned.pop(partition)
            for partition in partitions
            if partition in self._owned
        }
        waiting = (item for item in self._waiting if place_of(item).partition not in gone)
        self._waiting = deque(waiting)
        return {partition: owned.progress(()) for partition, owned in gone.items() if owned.popped}

    def leave(self) -> Mapping[LogPartition, Progress]:
        """Forget all partitions, since this process ends; return their progress.

        The next owner ends the sessions of the tasks that are not over.
        """
        left = self.progress(
            [partition for partition, owned in self._owned.items() if owned.popped]
        )
        self._owned.clear()
        self._waiting.clear()
        return left
