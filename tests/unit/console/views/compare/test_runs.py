"""Two runs beside each other, step by step."""

from collections.abc import Mapping

import pytest

from seamlessflow.console.models.course import Course
from seamlessflow.console.views.compare.runs import MISSING, RunsCompared, runs_compared
from seamlessflow.infra.kafka.client import Received
from tests.builders.console.course import AGAIN, POLICY, RESUMED, STEPS, course_items, lineage
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control

END = 2**62
OTHER = "runs/other"


def course_of(
    metrics: list[Mapping[str, float]], policy: str = POLICY, **trainer: object
) -> Course:
    """Return the course of a run with a step for each of these metrics."""
    records = [lineage("a", "", 0, **trainer)] if trainer else []
    steps = [
        control.completed(step, policy=policy, metrics=dict(figures))
        for step, figures in enumerate(metrics)
    ]
    return history_of(items_of("control", [*records, *steps]))[0].course


def compared(
    mine: Course, theirs: Course, step: int | None = None, window: int = 10, policy: str = ""
) -> RunsCompared:
    return runs_compared(mine, END, policy, (OTHER, theirs), step, window)


def of_items(items: list[Received]) -> Course:
    return history_of(items)[0].course


def test_the_last_steps_that_both_have_are_compared() -> None:
    whole = of_items(course_items())
    part = of_items(course_items()[:100])
    done = len(part.of_policy("", END).steps)
    shown = compared(whole, part)
    assert (shown.first, shown.last, shown.steps) == (done - 9, done, 10)
    assert (shown.done, shown.done_beside, shown.newest) == (STEPS, done, done)
    earlier = compared(whole, part, step=4)
    assert (earlier.first, earlier.last, earlier.steps) == (1, 4, 4)


def test_equal_runs_differ_in_nothing() -> None:
    course = of_items(course_items())
    shown = compared(course, course)
    assert {metric.change for metric in shown.metrics} == {0.0}
    assert not any(metric.marked for metric in shown.metrics)
    assert (shown.settings, shown.only_mine, shown.only_theirs) == ([], [], [])


def test_a_clear_difference_is_marked_and_comes_first() -> None:
    noise = [0.1, -0.1, 0.05, -0.05, 0.0, 0.12, -0.08, 0.02, -0.03, 0.07]
    mine = course_of([{"reward_mean": 0.5 + x, "entropy": 1 + x, "kl": 2.0} for x in noise])
    theirs = course_of([{"reward_mean": 0.2, "entropy": 1.0, "kl": 1.0} for _ in noise])
    shown = compared(mine, theirs)
    by_name = {metric.name: metric for metric in shown.metrics}
    reward = by_name["reward_mean"]
    assert reward.change == pytest.approx(0.3 + sum(noise) / 10)
    assert reward.low is not None and reward.high is not None
    assert 0 < reward.low < reward.change < reward.high
    entropy = by_name["entropy"]
    assert entropy.low is not None and entropy.high is not None
    assert entropy.low < 0 < entropy.high and not entropy.marked
    assert (by_name["kl"].low, by_name["kl"].marked) == (None, True), "all steps differ alike"
    assert [metric.name for metric in shown.metrics] == ["kl", "reward_mean", "entropy"]


def test_of_one_step_no_difference_is_clear() -> None:
    shown = compared(course_of([{"reward_mean": 1.0}]), course_of([{"reward_mean": 0.0}]))
    (reward,) = shown.metrics
    assert (reward.change, reward.low, reward.marked, reward.steps) == (1.0, None, False, 1)


def test_a_metric_counts_in_the_steps_in_which_both_have_it() -> None:
    mine = course_of([{"reward_mean": 1.0, "x": 1.0}, {"reward_mean": 1.0}, {"x": 5.0, "y": 1.0}])
    theirs = course_of([{"reward_mean": 1.0, "x": 0.0}, {"x": 9.0}, {"x": 1.0, "z": 1.0}])
    shown = compared(mine, theirs)
    by_name = {metric.name: metric for metric in shown.metrics}
    assert (by_name["x"].steps, by_name["x"].mine, by_name["x"].theirs) == (2, 3.0, 0.5)
    assert (list(shown.only_mine), list(shown.only_theirs)) == (["y"], ["z"])


def test_a_step_that_was_executed_again_counts_as_it_was_last() -> None:
    whole = of_items(course_items())
    shown = compared(whole, whole, step=RESUMED, window=AGAIN)
    assert shown.steps == AGAIN
    assert whole.of_policy("", END).steps[RESUMED - 1].lineage == "b"


def test_settings_are_those_of_the_trainers_that_executed_the_last_step() -> None:
    course = of_items(course_items())
    other = course_of([{"reward_mean": 1.0}] * STEPS, max_staleness=2, lr=0.1)
    late = [(row.name, row.mine, row.theirs) for row in compared(course, other).settings]
    assert late == [("trainer.lr", MISSING, "0.1"), ("trainer.max_staleness", "4", "2")]
    early = compared(course, other, step=3).settings
    assert [row.name for row in early] == ["trainer.lr"]


def test_a_run_whose_settings_are_not_recorded_is_named() -> None:
    bare = course_of([{"reward_mean": 1.0}])
    shown = compared(of_items(course_items()), bare)
    assert shown.without_settings == [OTHER]
    assert shown.settings == []


def test_another_run_may_name_its_policy_otherwise() -> None:
    mine = course_of([{"reward_mean": 1.0}] * 3)
    theirs = course_of([{"reward_mean": 1.0}] * 3, policy="theirs")
    shown = compared(mine, theirs)
    assert (shown.policy, shown.policy_beside, shown.steps) == (POLICY, "theirs", 3)


def test_runs_without_a_common_step_have_nothing_to_compare() -> None:
    shown = compared(of_items(course_items()), course_of([]))
    assert (shown.first, shown.last, shown.newest, shown.metrics) == (None, None, None, [])
