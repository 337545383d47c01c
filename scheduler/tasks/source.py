"""Tasks by the number of their draw and by their id."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.tasks.order import shuffled_place


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task."""

    task_id: str
    payload: bytes
    """The whole object as JSON with sorted keys."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Tasks in an order that depends on the seed alone."""

    rows: Sequence[TaskRow]
    find: Callable[[str], TaskRow | None]
    """Returns the task with an id, or None if there is none."""
    seed: int = 0
    shuffled: bool = True

    def draw(self, number: int) -> TaskRow:
        """Return the task of the `number`-th draw; each pass over the tasks has its own order."""
        finished_passes, place = divmod(number, len(self.rows))
        if self.shuffled:
            place = shuffled_place(place, len(self.rows), self.seed, finished_passes)
        return self.rows[place]


def listed(rows: Sequence[TaskRow]) -> TaskSource:
    """Return a source of tasks in memory, in the order of the list."""
    return TaskSource(rows, {row.task_id: row for row in rows}.get, shuffled=False)
