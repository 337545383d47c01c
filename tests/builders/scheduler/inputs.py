"""Inputs of a scheduler's decisions: folds of records, settings and tasks."""

from collections.abc import Iterable
from functools import reduce
from pathlib import Path

from seamlessflow.scheduler.decisions.decide import Rules
from seamlessflow.scheduler.decisions.strategies.registry import named
from seamlessflow.scheduler.settings import (
    EvaluationSection,
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.fleet import apply as fleet_apply
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource, listed
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control

BOTH = ("rollout", "train")


def fold(*records: Record) -> State:
    """Return the state after these records."""
    return reduce(state.apply, records, State())


def arms_fold(records: Iterable[Record]) -> Arms:
    """Return the statistics after these records of `control`, the first of which has offset 0."""
    arms, before = Arms(), State()
    for offset, record in enumerate(records):
        arms.apply(before, record, offset)
        before = state.apply(before, record)
    return arms


def fleet_of(*heartbeats: r.WorkerHeartbeat, now_ms: int = 0) -> Fleet:
    """Return the fleet after these heartbeats."""
    return reduce(lambda fleet, heard: fleet_apply(fleet, heard, now_ms), heartbeats, Fleet())


def joined_both(worker: str) -> list[Record]:
    return [control.joined(worker, "rollout"), control.joined(worker, "train")]


def holds(worker: str, role: str = "rollout", number: int = 0, gang_epoch: int = 0) -> list[Record]:
    """Return the assignment of a role, whose number is its slot also, and its acquisition."""
    slot = number if role == "rollout" else None
    return [
        control.assigned(worker, role, number, gang_epoch=gang_epoch, slot=slot),
        control.acquired(worker, role, number, slot=slot),
    ]


def scheduler_settings(
    run: RunSection | None = None,
    scheduler: SchedulerSection | None = None,
    pacing: PacingSection | None = None,
    evaluation: EvaluationSection | None = None,
) -> SchedulerSettings:
    """Return settings with tasks."""
    return SchedulerSettings(
        run=run or RunSection(),
        scheduler=scheduler or SchedulerSection(),
        pacing=pacing or PacingSection(tasks=Path("tasks.jsonl")),
        evaluation=evaluation or EvaluationSection(),
    )


def task_source(count: int = 4) -> TaskSource:
    """Return a source of so many tasks."""
    rows = tuple(TaskRow(f"task-{number}", b'{"id":0}', {}) for number in range(count))
    return listed(rows)


def rules_for(chosen: SchedulerSettings | None = None) -> Rules:
    """Return rules over made-up tasks."""
    chosen = chosen or scheduler_settings()
    return Rules(chosen, named(chosen.scheduler.policy), TaskSets(task_source()))
