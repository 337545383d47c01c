"""Bootstrap of the scheduler process: its parts, its strategy and its tasks, from the settings.

Called by `scheduler/__main__.py` and tests.
"""

import uuid
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from threading import Event

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.telemetry.instruments import process_metrics
from seamlessflow.scheduler.controller import Controller
from seamlessflow.scheduler.decisions.decide import Rules, View
from seamlessflow.scheduler.decisions.strategies import registry
from seamlessflow.scheduler.group_watch import GroupWatch
from seamlessflow.scheduler.journal import Clock, Journal
from seamlessflow.scheduler.settings import PacingSection, SchedulerSettings
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.file import TaskFile, read, source_of
from seamlessflow.scheduler.tasks.forks import fork_file
from seamlessflow.scheduler.tasks.mixture import Draws, TaskSets, mixed, with_forks
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, REQUESTS, TASKS

_TOPICS = (CONTROL, FLEET, TASKS, PROMPTS)


def serve(settings: SchedulerSettings, stop: Event, clock: Clock | None = None) -> None:
    """Run one scheduler until `stop` is set.

    Raises the errors of `Controller.run`, `rules_of` and `find_cluster`.
    """
    clock = clock or now_ms
    rules = rules_of(settings)
    cluster = find_cluster(settings.kafka, _TOPICS, stop.is_set)
    rules = replace(rules, slots=cluster.partitions[PROMPTS.name])
    name = f"scheduler-{uuid.uuid4().hex[:8]}"
    with (
        process_metrics(settings, "scheduler", name) as metrics,
        closing(Producer(settings.kafka, name)) as producer,
    ):
        stopping = stop.is_set
        letters = DeadLetters(settings.kafka, producer, stopping, held=True)
        reader = Reader(
            settings.kafka,
            name,
            rules=ReadingRules(bury=letters.bury, folds=True),
            stopping=stopping,
        )
        metrics.watch(reader)
        watched = settings.scheduler
        groups = GroupWatch(
            settings.kafka,
            {REQUESTS.name: watched.manager_group, TASKS.name: watched.agents_group},
        )
        try:
            view = View(State.of_run(settings.run.all_policies))
            journal = Journal(settings.kafka, reader, clock, view=view)
            controller = Controller(
                settings, rules, producer, journal, clock, name, metrics, letters, groups
            )
            controller.run(stopping)
        finally:
            groups.close()
            reader.close()


def rules_of(settings: SchedulerSettings) -> Rules:
    """Return the strategy and the tasks that the settings name.

    Raises `UnknownStrategy` or `TasksRejected`.
    """
    strategy = registry.named(settings.scheduler.policy, settings.scheduler.functions)
    return Rules(settings, strategy, task_sets(settings))


def task_sets(settings: SchedulerSettings) -> TaskSets:
    """Return all tasks of a run. Raises `TasksRejected`."""
    files = settings.evaluation.files.items()
    evaluations = {name: read(path, name) for name, path in files}
    return TaskSets(training_draws(settings.pacing), evaluations)


def training_draws(pacing: PacingSection) -> Draws | None:
    """Return the tasks to train on, or None if there are none.

    Several sources are ordered by their names, whatever their order in the settings. Raises
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
    weighted = [(source_of(file, pacing.seed, pacing.shuffle), weight) for file, weight in files]
    if forks is None:
        return mixed(weighted) if weighted else None
    source = source_of(forks, pacing.seed, pacing.shuffle)
    return with_forks(weighted, source, Fraction(str(pacing.fork_share))) if weighted else source
