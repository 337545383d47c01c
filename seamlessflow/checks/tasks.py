"""Check of files of tasks by their first lines, and of the size of their groups.

The scheduler reads all lines when it starts.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault, SettingPath
from seamlessflow.scheduler.settings import EvaluationSection, PacingSection
from seamlessflow.scheduler.tasks.file import TaskLine, TasksRejected, task_lines
from seamlessflow.scheduler.tasks.forks import fork_id
from seamlessflow.trainer.credit import COMPARED

_LINES, _FORKS = 1_000, 20
_OWN_SIZE = b'"group_size"'

Seen = dict[str, str]
"""Places of tasks by their ids."""


def pacing_faults(pacing: PacingSection) -> Iterator[Fault]:
    """Yield the first fault of each file to train on; no two have a task of the same id.

    Not called for a service, whose sessions others open.
    """
    if not pacing.issues:
        yield Fault(("pacing", "tasks"), "no file of tasks is named")
    seen: Seen = {}
    if pacing.tasks is not None:
        yield from task_faults(("pacing", "tasks"), pacing.tasks, seen)
    for name, source in sorted(pacing.sources.items()):
        yield from task_faults(("pacing", "sources", name, "tasks"), source.tasks, seen)
    if pacing.forks is not None:
        lines = islice(task_lines(pacing.forks, fork_id), _FORKS)
        yield from _faults(("pacing", "forks"), pacing.forks, lines, seen)


def group_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if every group has one session, and the advantage is its difference to others.

    Tasks and forks may have groups of a size of their own.
    """
    pacing, trainer = config.pacing, config.trainer
    files = [pacing.tasks, *(source.tasks for source in pacing.sources.values())]
    compared = trainer.advantage in COMPARED and trainer.loss.chosen_surrogate != "cloning"
    if config.run.group_size > 1 or not compared or pacing.forks or config.opened_outside:
        return
    if not any(_sized(path) for path in files if path is not None):
        text = f"advantage {trainer.advantage} compares the sessions of a group, and of one alone"
        remedy = "nothing would be learned: set 2 or more, or another trainer.advantage"
        yield Fault(("run", "group_size"), f"{text} {remedy}")


def evaluation_faults(evaluation: EvaluationSection, files: Mapping[str, Path]) -> Iterator[Fault]:
    """Yield the first fault of each of these files of evaluation sets, by their names."""
    for name, path in files.items():
        setting = ("sets", name, "tasks") if name in evaluation.sets else ("tasks",)
        yield from task_faults(("evaluation", *setting), path)


def task_faults(setting: SettingPath, path: Path, seen: Seen | None = None) -> Iterator[Fault]:
    """Yield the first fault of the first lines; `seen` are the tasks of other files."""
    lines = islice(task_lines(path), _LINES)
    yield from _faults(setting, path, lines, {} if seen is None else seen)


def _faults(
    setting: SettingPath, path: Path, lines: Iterable[TaskLine], seen: Seen
) -> Iterator[Fault]:
    places: Seen = {}
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


def _sized(path: Path) -> bool:
    """Return whether some task of the first lines may have a size of its own."""
    try:
        with path.open("rb") as file:
            return any(_OWN_SIZE in line for line in islice(file, _LINES))
    except OSError:
        return True  # what is wrong with the file is a fault of its own
