"""Tasks by the number of their draw and by their id."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seamlessflow.scheduler.tasks.order import SHUFFLED, shuffled_place
from seamlessflow.schemas.records import ForkedPrefix


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task."""

    task_id: str
    payload: bytes
    """The whole object as JSON with sorted keys."""
    metadata: Mapping[str, str]
    samples: int | None = None
    """Samples of a group of it; None: as many as the run's settings say."""
    min_samples: int | None = None
    """Samples with which a group of it may be trained at its deadline; None: as in the settings."""
    turn_limit: int | None = None
    """Turns that a session of it may have; None: as many as the settings say."""
    tags: tuple[str, ...] = ()
    fork: ForkedPrefix | None = None
    """Beginning of its sessions, taken from a recorded one; None: they begin empty."""
    split: str = ""
    """Name of the task set that it is of; empty: that of the settings."""


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """Rule by which a task was chosen, as `GroupAdmitted` records it."""

    name: str = ""
    version: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)


AGAIN = SamplingRule("again", 1)
"""Choice of a task whose last group was dropped."""


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

    def rule(self, number: int) -> SamplingRule:
        """Return the rule of the `number`-th draw, with its figures."""
        name, version = SHUFFLED if self.shuffled else ("in_order", 1)
        figures: dict[str, float] = {"draw": number, "tasks": len(self.rows)}
        if self.shuffled:
            figures["seed"] = self.seed
        return SamplingRule(name, version, figures)


def listed(rows: Sequence[TaskRow]) -> TaskSource:
    """Return a source of tasks in memory, in the order of the list."""
    return TaskSource(rows, {row.task_id: row for row in rows}.get, shuffled=False)
