"""Check of a file of tasks by its first lines; the scheduler reads all of them when it starts."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from infra.faults import Fault, SettingPath
from scheduler.tasks.file import TaskLine, TasksRejected, task_lines
from scheduler.tasks.forks import fork_id

_LINES, _FORKS = 1_000, 20


def task_faults(setting: SettingPath, path: Path) -> Iterator[Fault]:
    """Yield the first fault of the first lines."""
    yield from _faults(setting, path, islice(task_lines(path), _LINES))


def fork_faults(setting: SettingPath, path: Path) -> Iterator[Fault]:
    """Yield the first fault of the first lines of a file of forks."""
    yield from _faults(setting, path, islice(task_lines(path, fork_id), _FORKS))


def _faults(setting: SettingPath, path: Path, lines: Iterable[TaskLine]) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    try:
        for line in lines:
            if line.task_id in seen:
                first = seen[line.task_id]
                reason = f"line {first} has the id {line.task_id!r}, too"
                raise TasksRejected(path, line.number, reason)
            seen[line.task_id] = line.number
        if not seen:
            raise TasksRejected(path, 0, "there are no tasks in it")
    except TasksRejected as error:
        yield Fault(setting, str(error))
