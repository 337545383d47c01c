"""Backlog of tasks: those that were read ahead, and those whose episodes are under way. Pure.

The progress of a partition, which the feed commits, has two offsets. Behind `begun` no task was
started, so those belong to the next process. Before `ended` all tasks are over. A task between the
two was started by the process that committed it. After a crash, a successor closes its session.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from seamlessflow.infra.kafka.client import LogPartition, Received


class Progress(NamedTuple):
    """Progress of a partition: both are offsets of the next task."""

    ended: int
    begun: int


class Place(NamedTuple):
    """Place of a task in the log."""

    partition: LogPartition
    offset: int


def place_of(item: Received) -> Place:
    """Return the place of a record."""
    return Place((item.topic, item.partition), item.offset)


@dataclass(slots=True)
class _Owned:
    """State of a partition that this process owns."""

    popped: int
    """Offset of the next task to start here."""
    inherited: int
    """Offset before which a predecessor started the tasks."""

    def progress(self, running: Iterable[int]) -> Progress:
        ended = min([*running, self.popped])
        return Progress(ended, max(self.popped, self.inherited))


class Backlog:
    """Queue of tasks in the order in which they were read, and the progress of partitions."""

    def __init__(self) -> None:
        self._waiting: deque[Received] = deque()
        self._owned: dict[LogPartition, _Owned] = {}
        self._running: defaultdict[LogPartition, set[int]] = defaultdict(set)
        """Tasks whose episodes are under way here, also of partitions that have gone."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add_partition(self, partition: LogPartition, left: Progress) -> None:
        """Begin with a partition that its earlier owner left with this progress."""
        self._owned[partition] = _Owned(left.ended, left.begun)
        # It may have been here before. Tasks that were handed over as ended do not come again.
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
        """Return the progress of partitions that are owned."""
        return {
            partition: self._owned[partition].progress(self._running[partition])
            for partition in partitions
            if partition in self._owned
        }

    def drop(self, partitions: Iterable[LogPartition]) -> Mapping[LogPartition, Progress]:
        """Forget partitions that go to another process; return their progress.

        Episodes that are under way here go on, so for the next owner they are over.
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
