"""Index for a source's tasks: the key of each task's statistics, and the task's pool.

It keeps 16 bytes a task in memory, so that figures for thousands of tasks are found without reading
their lines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.scheduler.state.arms import arm_hash
from seamlessflow.scheduler.state.ledger import source_arm, task_arm
from seamlessflow.scheduler.tasks.file import TaskFile
from seamlessflow.scheduler.tasks.source import TaskRow

LEVEL = "level"
"""Metadata field that names pools by default, if all tasks have it."""


@dataclass(frozen=True, slots=True)
class TaskIndex:
    """Tasks from one source, by place."""

    rows: Sequence[TaskRow]
    source: str
    """The source's name, which is also the pool of tasks without the metadata field."""
    keys: NDArray[np.uint64]
    order: NDArray[np.uint32]
    """Places by ascending key."""
    pools: NDArray[np.uint32]
    names: Sequence[str]
    """Pool names by number."""

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, place: int) -> int:
        """Return the key for a task's statistics."""
        return int(self.keys[place])

    def place(self, key: int) -> int | None:
        """Return the place of the task with this key, or None if the source has none."""
        at = int(np.searchsorted(self.keys, np.uint64(key), sorter=self.order))
        if at == len(self.order) or self.key(int(self.order[at])) != key:
            return None
        return int(self.order[at])

    def pool(self, place: int) -> str:
        """Return the name that a task's pool has as an arm."""
        return self.names[int(self.pools[place])]


def indexed(rows: Sequence[TaskRow], source: str, by: str | None) -> TaskIndex:
    """Return a source's index. Reads all tasks once.

    `by`: metadata field whose values are pools; None: `level` if all tasks have it. Raises
    `TasksRejected` if the file has changed.
    """
    field = by or LEVEL
    of_source = source_arm(source)
    keys = np.empty(len(rows), np.uint64)
    pools = np.empty(len(rows), np.uint32)
    numbers: dict[str | None, int] = {None: 0}
    for place, (task_id, value) in enumerate(_labels(rows, field)):
        keys[place] = arm_hash(task_arm(task_id))
        pools[place] = numbers.setdefault(value, len(numbers))
    if by is None and (pools == 0).any():
        pools[:] = 0
    order = np.argsort(keys, kind="stable").astype(np.uint32)
    names = [of_source if value is None else f"pool:{field}:{value}" for value in numbers]
    return TaskIndex(rows, source, keys, order, pools, names)


def _labels(rows: Sequence[TaskRow], field: str) -> Iterable[tuple[str, str | None]]:
    """Return id and metadata field of each task; None for a missing field."""
    if isinstance(rows, TaskFile):
        return rows.labels(field)
    return ((row.task_id, row.metadata.get(field)) for row in rows)
