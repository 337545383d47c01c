"""Samplers where tasks change between two lives of a run, or where returns tell nothing."""

import random
from collections.abc import Sequence

import pytest

from seamlessflow.scheduler.sampling.draws import FELL_BACK, TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.registry import SAMPLERS
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource
from tests.builders.scheduler.sampling import SampledRun, source_of
from tests.seed import seed

NAMES = sorted(SAMPLERS)
STEPS = 40
AT_ONCE = 4


def sampling(source: TaskSource, name: str, group_size: int = 8) -> TaskSampling:
    sampler = SamplerSection.model_validate({"name": name})
    terms = TermsSection.model_validate({"name": "by_success"})
    return sampling_of(sampler, terms, {}, source, (0, group_size, 20))


def run_of(source: TaskSource, name: str, group_size: int = 8) -> SampledRun:
    return SampledRun(source, sampling(source, name, group_size))


def tasks(names: Sequence[str], level: int = 1) -> TaskSource:
    """Return the tasks with these ids, all of one level."""
    rows = tuple(TaskRow(name, b"{}", {"level": str(level)}, split="train") for name in names)
    return TaskSource(rows, {row.task_id: row for row in rows}.get, name="train")


def play(run: SampledRun, returns: Sequence[float], steps: int = STEPS) -> list[str]:
    """Draw and finish groups with these returns; return the drawn tasks, in their order.

    None of them may have fallen back to the shuffled order.
    """
    names = []
    for step in range(1, steps + 1):
        drawn = run.admit(AT_ONCE)
        assert 0 < len(drawn) <= AT_ONCE, "trace may give all samples to fewer groups"
        assert not any(FELL_BACK in each.rule.figures for each in drawn)
        for each in drawn:
            names.append(each.row.task_id)
            run.finish(each.row.task_id, *returns)
        run.train(step)
    return names


def live_again(run: SampledRun, source: TaskSource, name: str) -> None:
    """Let another scheduler go on with another file of tasks."""
    run.take_over()
    run.draws = source
    run.sampling = sampling(source, name)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_that_were_removed_are_drawn_no_more_and_added_ones_are(name: str) -> None:
    run = run_of(tasks([f"old-{number}" for number in range(20)]), name)
    play(run, (1.0, 0.0))
    begun = run.names(AT_ONCE)  # under way while the file changes
    left = [f"old-{number}" for number in range(0, 20, 2)]
    live_again(run, tasks([*left, *(f"new-{number}" for number in range(10))]), name)
    for task in begun:
        run.finish(task, 1.0, 0.0)
    drawn = set(play(run, (1.0, 0.0)))
    assert drawn <= {*left, *(f"new-{number}" for number in range(10))}
    assert sum(task.startswith("new") for task in drawn) > 3


@pytest.mark.parametrize("name", NAMES)
def test_a_task_whose_level_changed_counts_for_its_new_pool(name: str) -> None:
    names = [f"task-{number}" for number in range(12)]
    run = run_of(tasks(names), name)
    play(run, (1.0, 1.0), steps=5)
    before = run.arms.arm("pool:level:1")
    live_again(run, tasks(names, level=2), name)
    drawn = play(run, (0.0, 0.0), steps=5)
    assert run.arms.arm("pool:level:1") == before
    assert run.arms.arm("pool:level:2").lost == len(drawn)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_shrank_and_one_that_grew_go_on(name: str) -> None:
    draw = random.Random(f"{seed} {name}")
    run = run_of(source_of(30), name)
    for count in (30, AT_ONCE, 200, 5, 50):
        live_again(run, source_of(count), name)
        drawn = play(run, (draw.choice([0.0, 1.0]), 0.0), steps=10)
        assert set(drawn) <= {f"train-{number}" for number in range(count)}, f"seed {seed}"


@pytest.mark.parametrize("value", [0.0, 1.0, -7.5])
@pytest.mark.parametrize("name", NAMES)
def test_returns_that_are_equal_for_ever_leave_all_tasks_in_the_draw(
    name: str, value: float
) -> None:
    drawn = play(run_of(source_of(20), name), (value, value))
    assert len(set(drawn)) == 20


@pytest.mark.parametrize("name", NAMES)
def test_returns_outside_0_and_1_count_as_passes_and_failures(name: str) -> None:
    run = run_of(source_of(20), name)
    play(run, (-3.0, 1e12, 1.0, 0.999))
    arm = run.arms.arm("source:train")
    assert (arm.last_passed, arm.last_counted) == (2, 4)
    assert arm.passed == pytest.approx(arm.failed)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "explore"])  # it has its own
def test_groups_of_one_have_a_sample_each(name: str) -> None:
    run = run_of(source_of(20), name, group_size=1)
    samples = 0
    for _ in range(STEPS):
        for each in run.admit(AT_ONCE):
            count = each.samples or 1
            run.finish(each.row.task_id, *[1.0] * count)
            samples += count
    # A single sample is of no use to `trace`, which makes half as many groups of two.
    each_has = 2 if name == "trace" else 1
    assert samples == STEPS * AT_ONCE
    assert run.arms.arm("source:train").ready == samples / each_has
