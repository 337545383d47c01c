"""Sizes of groups: of the task, else of the run, and recorded when the group is admitted."""

from dataclasses import replace
from pathlib import Path

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.settings import PacingSection, RunSection
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.scheduler.tasks.source import TaskRow, listed
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.forks import forked
from tests.builders.scheduler.inputs import fold, holds, scheduler_settings

PACING = PacingSection(tasks=Path("tasks"))
SETTINGS = scheduler_settings(
    RunSection(groups_per_step=2, group_size=2, lag=1, steps=10), pacing=PACING
)
STARTED: list[Record] = [control.claimed(), control.published(0), control.joined("w"), *holds("w")]
SIZED = listed(
    [
        TaskRow("pair", b"{}", {}, samples=2, tags=("easy",)),
        TaskRow("four", b"{}", {}, samples=4, min_samples=3),
        TaskRow("plain", b"{}", {}),
    ]
)


def test_a_group_records_the_sizes_of_its_task_or_of_the_settings() -> None:
    run = RunSection(groups_per_step=2, group_size=8, min_group_size=5, lag=1, steps=10)
    settings = scheduler_settings(run, pacing=PACING)
    due = pacing.admissions(fold(*STARTED), settings, SIZED, 0)
    assert [
        (group.task_id, group.group_size, group.min_group_size, group.tags) for group in due
    ] == [
        ("pair", 2, 2, ("easy",)),
        ("four", 4, 3, ()),
        ("plain", 8, 5, ()),
        ("pair", 2, 2, ("easy",)),
    ]
    issued = pacing.tasks(fold(*STARTED, *due[:3]).first.ledger, {}, settings, TaskSets(SIZED), 0)
    asked = [(task.task_id, task.group_size, task.min_group_size) for task in issued]
    assert asked == [*[("pair", 2, 2)] * 2, *[("four", 4, 3)] * 4, *[("plain", 8, 5)] * 8]


def test_a_group_of_one_is_whole_with_that_and_others_need_two_unless_it_is_set() -> None:
    run = RunSection(groups_per_step=2, group_size=1, lag=1, steps=10)
    due = pacing.admissions(fold(*STARTED), scheduler_settings(run, pacing=PACING), SIZED, 0)
    sizes = {group.task_id: (group.group_size, group.min_group_size) for group in due}
    assert sizes == {"pair": (2, 2), "four": (4, 3), "plain": (1, 1)}


def test_a_group_under_way_keeps_its_size_when_the_settings_change() -> None:
    due = pacing.admissions(fold(*STARTED), SETTINGS, SIZED, 0)
    later = scheduler_settings(RunSection(group_size=3, min_group_size=3), pacing=PACING)
    issued = pacing.tasks(fold(*STARTED, due[2]).first.ledger, {}, later, TaskSets(SIZED), 0)
    assert [(task.sample, task.group_size, task.min_group_size) for task in issued] == [
        (0, 2, 2),
        (1, 2, 2),
    ]


def test_a_group_of_a_log_without_sizes_has_those_of_its_task_and_the_settings() -> None:
    ledger = fold(
        *STARTED, control.admitted("run-0", task_id="four", deadline_ms=9_000)
    ).first.ledger
    issued = pacing.tasks(ledger, {}, SETTINGS, TaskSets(SIZED), 0)
    assert [(task.group_size, task.min_group_size) for task in issued] == [(4, 3)] * 4


def test_a_group_records_its_turn_limit_and_keeps_it() -> None:
    rows = listed([TaskRow("short", b"{}", {}, turn_limit=3), TaskRow("plain", b"{}", {})])
    run = RunSection(groups_per_step=1, group_size=2, lag=1, steps=10, turn_limit=8)
    due = pacing.admissions(fold(*STARTED), scheduler_settings(run, pacing=PACING), rows, 0)
    assert [(group.task_id, group.turn_limit) for group in due] == [("short", 3), ("plain", 8)]
    issued = pacing.tasks(fold(*STARTED, *due).first.ledger, {}, SETTINGS, TaskSets(rows), 0)
    assert [task.turn_limit for task in issued] == [3, 3, 8, 8]


def test_a_group_records_the_rule_that_drew_its_task() -> None:
    state = fold(*STARTED)
    (first, second, *_) = pacing.admissions(state, SETTINGS, SIZED, 0)
    assert (first.sampler, first.sampler_version) == ("in_order", 1)
    assert first.sampler_figures == {"draw": 0, "tasks": 3}
    assert second.sampler_figures == {"draw": 1, "tasks": 3}

    shuffled = replace(SIZED, shuffled=True, seed=7)
    (first, *_) = pacing.admissions(state, SETTINGS, shuffled, 0)
    assert (first.sampler, first.sampler_figures["seed"]) == ("shuffled", 7)
    assert first.task_id == shuffled.draw(int(first.sampler_figures["draw"])).task_id

    again = fold(*STARTED, first, control.dropped(first.group_id, reason="failed"))
    (repeated, *_) = pacing.admissions(again, SETTINGS, shuffled, 0)
    assert (repeated.task_id, repeated.sampler) == (first.task_id, "again")


def test_a_group_of_forks_records_the_turn_that_they_go_on_from() -> None:
    row = TaskRow("fork", b"{}", {}, fork=forked())
    (due, *_) = pacing.admissions(fold(*STARTED), SETTINGS, listed([row]), 0)
    origin = forked().origin
    assert (due.parent_session, due.parent_turn) == (origin.session_id, origin.turn_id)
