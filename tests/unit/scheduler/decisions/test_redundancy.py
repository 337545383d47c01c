"""Redundancy: more samples than a group needs, with the same deadlines and attempts."""

from pathlib import Path

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.settings import EvaluationSection, PacingSection, RunSection
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas.records import Record, Task
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, scheduler_settings, task_source

PACING = PacingSection(
    tasks=Path("tasks"), task_timeout_s=10, task_grace_s=1, group_timeout_s=100, redundancy=2
)
SETTINGS = scheduler_settings(
    RunSection(group_size=2), pacing=PACING, evaluation=EvaluationSection(samples=3)
)
SETS = TaskSets(task_source(), {"test": task_source()})


def issued(*records: Record, now_ms: int = 0) -> list[Task]:
    return pacing.tasks(fold(*records).first.ledger, {}, SETTINGS, SETS, now_ms)


def test_a_group_for_training_begins_more_samples_than_it_asks_for() -> None:
    tasks = issued(control.admitted("run-0", deadline_ms=100_000))
    assert [(task.sample, task.group_size, task.min_group_size) for task in tasks] == [
        (sample, 2, 2) for sample in range(4)
    ]


def test_an_evaluation_begins_no_more_than_its_samples() -> None:
    tasks = issued(control.admitted("run-eval0-0", purpose="eval", deadline_ms=100_000))
    assert [(task.sample, task.group_size) for task in tasks] == [
        (number, 3) for number in range(3)
    ]


def test_the_further_samples_have_the_deadlines_and_attempts_of_all_others() -> None:
    group = control.admitted("run-0", deadline_ms=100_000)
    again = issued(group, now_ms=11_000)
    assert [(task.sample, task.attempt, task.deadline_ms) for task in again] == [
        (sample, 1, 21_000) for sample in range(4)
    ]
    assert issued(group, control.ready("run-0"), now_ms=11_000) == []
    assert issued(group, control.expired("run-0"), now_ms=101_000) == []
