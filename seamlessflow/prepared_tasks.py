"""Tasks in any form that settings name, prepared as files of JSON lines in the run's directory.

`config_file.py` calls this, so that all later code reads files of JSON lines. A file of JSON lines
whose rows are all tasks is read where it lies.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seamlessflow.config import RunConfig
from seamlessflow.infra.disk import DiskFull
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.variables import SettingPath
from seamlessflow.read_paths import replaced, values_at
from seamlessflow.scheduler.tasks.prepared.places import is_plain, shown_place
from seamlessflow.scheduler.tasks.prepared.preparing import prepared_file
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected

FOLDER = "prepared_tasks"
"""Folder for the prepared files, in the run's directory."""
_UNSET: Mapping[str, Any] = TaskDataSection().model_dump()
_SILENT_S = 2.0
_EVERY_S = 5.0


class NamedTasks(NamedTuple):
    """Tasks that a section names."""

    section: SettingPath
    text: str
    """Their place, as the settings name it."""
    data: TaskDataSection
    for_evaluation: bool

    @property
    def setting(self) -> SettingPath:
        """Setting that names them."""
        return (*self.section, "tasks")

    @property
    def plain(self) -> bool:
        """True if their file is read where it lies."""
        return not self.data.chooses and is_plain(self.text)


def named_tasks(sections: Mapping[str, Any], config: RunConfig) -> list[NamedTasks]:
    """Return all tasks that the sections name; `config` is the configuration read from them."""
    data: dict[SettingPath, TaskDataSection] = {
        ("pacing",): config.pacing,
        ("evaluation",): config.evaluation,
        **{("pacing", "sources", name): source for name, source in config.pacing.sources.items()},
        **{
            ("evaluation", "sets", name): task_set
            for name, task_set in config.evaluation.sets.items()
        },
    }
    named = []
    for section, chosen in data.items():
        texts = dict(values_at(sections, [tuple(map(str, (*section, "tasks")))]))
        named += [
            NamedTasks(section, text, chosen, section[0] == "evaluation") for text in texts.values()
        ]
    return named


def shared_faults(named: list[NamedTasks]) -> Iterator[Fault]:
    """Yield a fault for each evaluation that may have trained tasks although `held_back` is set."""
    trained = {_place(tasks): tasks for tasks in named if not tasks.for_evaluation}
    for tasks in named:
        other = trained.get(_place(tasks)) if tasks.for_evaluation else None
        if other is None or not (tasks.data.held_back or other.data.held_back):
            continue
        where = ".".join(map(str, other.section))
        if tasks.data.held_back != other.data.held_back:
            shares = f"{other.data.held_back:g}, and here it is {tasks.data.held_back:g}"
            text = f"{where} names the same source with held_back {shares}: set the same share"
            yield Fault((*tasks.section, "held_back"), text)
        elif tasks.data.map != other.data.map:
            text = f"{where} names the same source with another map, by which ids and so the "
            yield Fault((*tasks.section, "map"), f"{text}held-back tasks may differ: set the same")


def prepare(tasks: NamedTasks, out: Path, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections with the prepared file in the place of the tasks.

    It prints a long preparation's progress to standard error. Raises `SourceRejected`.
    """
    progress = _Printed(shown_place(tasks.text))
    folder = out / FOLDER
    try:
        file = prepared_file(tasks.text, tasks.data, tasks.for_evaluation, folder, progress)
    except (DiskFull, OSError) as error:
        raise SourceRejected(str(folder), "", str(error)) from error
    for name, unset in _UNSET.items():
        sections = replaced(sections, (*tasks.section, name), unset)
    return replaced(sections, tasks.setting, str(file))


class _Printed:
    """A preparation's progress, on standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next = time.monotonic() + _SILENT_S

    def __call__(self, rows: int) -> None:
        """Print how many rows are read, if it is time to."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY_S
            print(f"{self._name}: {rows:,} rows read", file=sys.stderr, flush=True)


def _place(tasks: NamedTasks) -> str:
    return tasks.text if "://" in tasks.text else str(Path(tasks.text).absolute())
