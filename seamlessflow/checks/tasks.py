"""Check of a file of tasks by its first lines; the scheduler reads all of them when it starts."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from infra.faults import Fault, SettingPath
from scheduler.tasks.file import TasksRejected, task_lines

_LINES = 1_000


def task_faults(setting: SettingPath, path: Path) -> Iterator[Fault]:
    """Yield the first fault of the first lines."""
    seen: dict[str, int] = {}
    try:
        for line in islice(task_lines(path), _LINES):
            if line.task_id in seen:
                first = seen[line.task_id]
                reason = f"line {first} has the id {line.task_id!r}, too"
                raise TasksRejected(path, line.number, reason)
            seen[line.task_id] = line.number
        if not seen:
            raise TasksRejected(path, 0, "there are no tasks in it")
    except TasksRejected as error:
        yield Fault(setting, str(error))
