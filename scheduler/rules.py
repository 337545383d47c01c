"""Rules of a run as its settings name them: the strategy, the files to train on, the evaluations.

Called by `scheduler/controller.py` at its start.
"""

from fractions import Fraction
from itertools import combinations

from seamlessflow.scheduler.decisions.decide import Rules
from seamlessflow.scheduler.decisions.strategies import registry
from seamlessflow.scheduler.settings import PacingSection, SchedulerSettings
from seamlessflow.scheduler.tasks.file import TaskFile, read, source_of
from seamlessflow.scheduler.tasks.forks import fork_file
from seamlessflow.scheduler.tasks.mixture import Draws, TaskSets, mixed, with_forks


def rules_of(settings: SchedulerSettings) -> Rules:
    """Return the strategy and the tasks that the settings name.

    Raises `UnknownStrategy` or `TasksRejected`.
    """
    strategy = registry.named(settings.scheduler.policy)
    return Rules(settings, strategy, task_sets(settings))


def task_sets(settings: SchedulerSettings) -> TaskSets:
    """Return all tasks of a run. Raises `TasksRejected`."""
    files = settings.evaluation.files.items()
    evaluations = {name: read(path, name) for name, path in files}
    return TaskSets(training_draws(settings.pacing), evaluations)


def training_draws(pacing: PacingSection) -> Draws | None:
    """Return the tasks to train on, or None if there are none.

    The order of several sources is that of their names, whatever that of the settings. Raises
    `TasksRejected`, also for an id that two files have.
    """
    files = [
        (TaskFile(section.tasks, split=name), Fraction(str(section.weight)))
        for name, section in sorted(pacing.sources.items())
    ]
    if pacing.tasks is not None:
        files = [(TaskFile(pacing.tasks, split=pacing.split), Fraction(1))]
    forks = None if pacing.forks is None else fork_file(pacing.forks, pacing.split)
    for first, second in combinations([file for file, _ in files] + ([forks] if forks else []), 2):
        second.refuse_ids_of(first)
    order = pacing.seed, pacing.shuffle
    weighted = [(source_of(file, *order), weight) for file, weight in files]
    if forks is None:
        return mixed(weighted) if weighted else None
    source = source_of(forks, *order)
    return with_forks(weighted, source, Fraction(str(pacing.fork_share))) if weighted else source
