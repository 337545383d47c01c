"""Bootstrap of the scheduler process: builds its parts, strategy and tasks from the settings.

Called by `scheduler/__main__.py` and tests.
"""

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from threading import Event

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import SettingsRejected, WrittenReleaseLacks
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.telemetry.instruments import process_metrics
from seamlessflow.scheduler.controller import Controller
from seamlessflow.scheduler.decisions.decide import Rules, View
from seamlessflow.scheduler.decisions.strategies import registry
from seamlessflow.scheduler.group_watch import GroupWatch
from seamlessflow.scheduler.journal import READER_OPTIONS, Clock, Journal
from seamlessflow.scheduler.sampling.draws import TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.registry import heavy_imports_named
from seamlessflow.scheduler.settings import PacingSection, SchedulerSettings
from seamlessflow.scheduler.state.arms import NO_ARM, Arms, PassCounting
from seamlessflow.scheduler.state.ledger import source_name
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.file import TaskFile, read, source_of
from seamlessflow.scheduler.tasks.forks import fork_file
from seamlessflow.scheduler.tasks.mixture import (
    Drawing,
    Draws,
    Stages,
    TaskSets,
    mixed,
    with_forks,
)
from seamlessflow.scheduler.tasks.prepared.places import is_plain
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection
from seamlessflow.scheduler.tasks.source import TaskSource
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET, PROMPTS, REQUESTS, TASKS
from seamlessflow.schemas.written import EncodeRecord

_TOPICS = (CONTROL, FLEET, ARMS, TASKS, PROMPTS)


def serve(settings: SchedulerSettings, stop: Event, clock: Clock | None = None) -> None:
    """Run one scheduler until `stop` is set.

    Raises the errors of `Controller.run`, `rules_of`, `check_release` and `find_cluster`.
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
        check_release(settings, producer.encode)
        stopping = stop.is_set
        letters = DeadLetters(settings.kafka, producer, stopping, held=True)
        reader = Reader(
            settings.kafka,
            name,
            rules=ReadingRules(bury=letters.bury, folds=True),
            stopping=stopping,
            **READER_OPTIONS,
        )
        metrics.watch(reader)
        watched = settings.scheduler
        groups = GroupWatch(
            settings.kafka,
            {REQUESTS.name: watched.manager_group, TASKS.name: watched.agents_group},
        )
        try:
            began = State.of_run(settings.run.all_policies, settings.run.frozen)
            view = View(began, arms=arms_of(settings))
            journal = Journal(settings.kafka, reader, clock, view=view)
            controller = Controller(
                settings, rules, producer, journal, clock, name, metrics, letters, groups
            )
            controller.run(stopping)
        finally:
            groups.close()
            reader.close()


def check_release(settings: SchedulerSettings, encode: EncodeRecord) -> None:
    """Raise `SettingsRejected` if drawing tasks needs statistics that the written release lacks."""
    pacing = settings.pacing
    rules = {
        "SAMPLER__NAME": pacing.sampler.name,
        "TERMS__NAME": pacing.terms.name,
        "FORKS_LIVE": pacing.forks_live or None,
    }
    asked = [rule for rule, name in rules.items() if name is not None]
    if not asked:
        return
    (record,) = Arms(by_name={"": NO_ARM}, changed={""}).snapshots(epoch=0, offset=0)
    try:
        encode(record)
    except WrittenReleaseLacks as error:
        reason = (
            f"it needs statistics of tasks, which release {error.release} does not keep: do "
            "without it until all processes are upgraded, or unset kafka.write_release "
            "(SEAMLESSFLOW_KAFKA__WRITE_RELEASE) if they are"
        )
        raise SettingsRejected(f"SEAMLESSFLOW_PACING__{asked[0]}", reason) from error


def rules_of(settings: SchedulerSettings) -> Rules:
    """Return the strategy, the tasks and the sampling that the settings name.

    Raises `UnknownStrategy`, `TasksRejected` or `FunctionUnusable`.
    """
    policy = settings.scheduler.policy
    with heavy_imports_named("scheduler.policy", policy):
        strategy = registry.named(policy, settings.scheduler.functions)
    sets = task_sets(settings)
    sampling = sampling_of_run(settings, sets.training)
    return Rules(settings, strategy, sets, sampling=sampling)


def sampling_of_run(settings: SchedulerSettings, draws: Draws | None) -> TaskSampling:
    """Return a run's sampler and terms. Raises `FunctionUnusable` or `TasksRejected`."""
    pacing = settings.pacing
    sizes = (pacing.seed, settings.run.group_size, settings.run.turn_limit)
    sampling = sampling_of(
        pacing.sampler, pacing.terms, pacing.functions, draws, sizes, pacing.live_forks
    )
    return replace(sampling, groups_per_step=settings.run.groups_per_step)


def arms_of(settings: SchedulerSettings) -> Arms:
    """Return the statistics for a run that has none yet."""
    sampler = settings.pacing.sampler
    return Arms(
        PassCounting(memory=sampler.memory, own_memory=sampler.own_memory, passes=sampler.passes)
    )


def task_sets(settings: SchedulerSettings) -> TaskSets:
    """Return all tasks for a run.

    Raises `TasksRejected`, and `SettingsRejected` if a task file is not in JSON lines.
    """
    _refuse_unprepared(settings)
    files = settings.evaluation.files.items()
    evaluations = {name: read(path, name) for name, path in files}
    return TaskSets(training_draws(settings.pacing), evaluations)


def _refuse_unprepared(settings: SchedulerSettings) -> None:
    """Raise `SettingsRejected` for task files not in JSON lines; the launcher prepares those."""
    named: dict[str, Sequence[tuple[Path | None, TaskDataSection]]] = {
        "PACING__TASKS": [(settings.pacing.tasks, settings.pacing)],
        "PACING__SOURCES": [(part.tasks, part) for part in settings.pacing.sources.values()],
        "EVALUATION__TASKS": [(settings.evaluation.tasks, settings.evaluation)],
        "EVALUATION__SETS": [(part.tasks, part) for part in settings.evaluation.sets.values()],
    }
    for name, several in named.items():
        if any(path and (part.chooses or not is_plain(str(path))) for path, part in several):
            reason = (
                "a scheduler alone reads JSON lines: `seamlessflow train` prepares other forms, "
                "name the file that it wrote in OUT/prepared_tasks"
            )
            raise SettingsRejected(f"SEAMLESSFLOW_{name}", reason)


def training_draws(pacing: PacingSection) -> Draws | None:
    """Return the tasks to train on, or None if there are none.

    Several sources are ordered by name, whatever their order in the settings. Raises
    `TasksRejected`, also if two files have the same id.
    """
    named = {name: section.tasks for name, section in sorted(pacing.sources.items())}
    if pacing.tasks is not None:
        named = {pacing.split: pacing.tasks}
    files = {name: TaskFile(path, split=name) for name, path in named.items()}
    forks = None if pacing.forks is None else fork_file(pacing.forks, pacing.split)
    for first, second in combinations([*files.values(), *([forks] if forks else [])], 2):
        second.refuse_ids_of(first)
    sources = [source_of(file, pacing.seed, pacing.shuffle, name) for name, file in files.items()]
    forked = None
    if forks is not None:
        name = source_name(pacing.split, forked=True)
        forked = source_of(forks, pacing.seed, pacing.shuffle, name)
    stages = [(step, _drawing(sources, forked, step, pacing)) for step in pacing.stages]
    first_stage = stages[0][1]
    if first_stage is None or len(stages) == 1:
        return first_stage
    return Stages([(step, drawing) for step, drawing in stages if drawing is not None])


def _drawing(
    sources: Sequence[TaskSource], forked: TaskSource | None, step: int, pacing: PacingSection
) -> Drawing | None:
    """Return the mixture at a trained step, or None if there are no tasks."""
    weights = pacing.weights_at(step) if pacing.sources else [1.0] * len(sources)
    weighted = [
        (source, Fraction(str(weight))) for source, weight in zip(sources, weights, strict=True)
    ]
    if forked is None:
        return mixed(weighted) if weighted else None
    return with_forks(weighted, forked, Fraction(str(pacing.fork_share))) if weighted else forked
