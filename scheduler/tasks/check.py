"""Check of task files before a run, by their first lines. The scheduler reads all lines later.

The checks of a configuration (`seamlessflow/checks`) call it.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from seamlessflow.infra.faults import Fault
from seamlessflow.infra.json_lines import json_lines
from seamlessflow.infra.variables import SettingPath
from seamlessflow.scheduler.tasks.file import (
    TaskLine,
    TasksRejected,
    named_roles,
    task_lines,
)
from seamlessflow.scheduler.tasks.forks import fork_id
from seamlessflow.schemas.json_text import read_json

_LINES = 1_000
_FORKS = 20
_OWN_SIZE = b'"group_size"'
_ROLES = b'"roles"'

SeenTasks = dict[str, str]
"""Places of tasks, by task id."""


def task_faults(setting: SettingPath, path: Path, seen: SeenTasks | None = None) -> Iterator[Fault]:
    """Yield a file's first fault; `seen` has other files' tasks, and gets this file's."""
    lines = islice(task_lines(path), _LINES)
    yield from _faults(setting, path, lines, {} if seen is None else seen)


def fork_faults(setting: SettingPath, path: Path, seen: SeenTasks) -> Iterator[Fault]:
    """Yield the first fault in a forks file; `seen` has other files' tasks."""
    yield from _faults(setting, path, islice(task_lines(path, fork_id), _FORKS), seen)


def may_have_sizes(path: Path) -> bool:
    """Return whether a task in the first lines may have its own group size."""
    try:
        with path.open("rb") as file:
            return any(_OWN_SIZE in line for line in islice(file, _LINES))
    except OSError:
        return True  # a fault in the file is reported elsewhere


def other_role(path: Path, roles: Collection[str]) -> str:
    """Return the first task role not among `roles`, with its line; empty if there is none."""
    try:
        with path.open("rb") as file:
            for line in islice(json_lines(file), _LINES):
                task = read_json(line.content) if _ROLES in line.content else None
                named = named_roles(task) if isinstance(task, dict) else ()
                if strange := [role for role in named if role not in roles]:
                    return f"{path}, line {line.number}: {strange[0]!r}"
    except (OSError, ValueError):
        pass  # reported elsewhere
    return ""


def _faults(
    setting: SettingPath, path: Path, lines: Iterable[TaskLine], seen: SeenTasks
) -> Iterator[Fault]:
    places: SeenTasks = {}
    try:
        for line in lines:
            if (first := places.get(line.task_id) or seen.get(line.task_id)) is not None:
                reason = f"{first} has the id {line.task_id!r}, too"
                raise TasksRejected(path, line.number, reason)
            places[line.task_id] = f"line {line.number}"
        if not places:
            raise TasksRejected(path, 0, "there are no tasks in it")
    except TasksRejected as error:
        yield Fault(setting, str(error))
    seen.update({task_id: f"{path}, {place}" for task_id, place in places.items()})
