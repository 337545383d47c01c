"""Metrics of a step that stand out from the steps before it."""

from itertools import cycle, islice
from math import inf, nan

import pytest

from seamlessflow.console.views.unusual import BEFORE, MOST, unusual_figures


def steps(name: str, *values: float, count: int = BEFORE) -> list[dict[str, float]]:
    """Return steps with one metric, whose values repeat."""
    return [{name: value} for value in islice(cycle(values), count)]


def names(step: dict[str, float], before: list[dict[str, float]]) -> list[str]:
    return [figure.name for figure in unusual_figures(step, before)]


def test_a_value_far_outside_its_spread_stands_out_with_what_is_usual() -> None:
    (figure,) = unusual_figures({"reward_mean": 0.1}, steps("reward_mean", 0.7, 0.8, 0.9))
    assert (figure.value, figure.usual, figure.least, figure.most) == (0.1, 0.8, 0.7, 0.9)
    assert figure.meaning.startswith("Mean return")


@pytest.mark.parametrize("value", [0.7, 0.85, 0.95, 1.1])
def test_a_value_near_the_others_does_not(value: float) -> None:
    assert not names({"reward_mean": value}, steps("reward_mean", 0.7, 0.8, 0.9))


def test_a_metric_that_grows_steadily_does_not_stand_out() -> None:
    before = [{"lr": 0.01 * step} for step in range(BEFORE)]
    assert not names({"lr": 0.01 * BEFORE}, before)


def test_single_bad_steps_before_do_not_hide_another() -> None:
    before = [*steps("loss", 1.0, 1.1, 1.2), {"loss": 50.0}, *steps("loss", 1.0, 1.1, count=9)]
    assert names({"loss": 60.0}, before) == ["loss"]


def test_a_constant_stands_out_once_it_changes_and_rounding_does_not() -> None:
    assert names({"tasks": 5.0}, steps("tasks", 4.0)) == ["tasks"]
    assert names({"tasks": 1e-9}, steps("tasks", 0.0)) == ["tasks"]
    assert not names({"tasks": 4.0 + 1e-9}, steps("tasks", 4.0))


def test_members_of_families_that_are_missing_count_as_none_of_them() -> None:
    assert names({"dropped/stale": 3.0}, steps("reward_mean", 0.5)) == ["dropped/stale"]
    assert not names({"mine/score": 3.0}, steps("reward_mean", 0.5))


def test_few_steps_before_are_no_measure() -> None:
    assert not names({"loss": 9.0}, steps("loss", 1.0, count=7))
    assert names({"loss": 9.0}, steps("loss", 1.0, count=8)) == ["loss"]


def test_values_that_are_no_numbers_are_no_measure_and_an_infinite_one_is_the_farthest() -> None:
    before = [{"grad_norm": 1.0, "loss": 1.0, "entropy": nan}] * BEFORE
    step = {"loss": 2.0, "grad_norm": inf, "entropy": 1.0}
    assert names(step, before) == ["grad_norm", "loss"]
    assert not names({"loss": nan}, before)


def test_of_a_family_and_of_equal_metrics_one_is_shown() -> None:
    usual = {"prompt_tokens/p50": 9.0, "prompt_tokens/mean": 9.5, "pass_at/1": 1.0}
    before = [{**usual, "reward_mean": 1.0, "reward_of/agent": 1.0}] * BEFORE
    step = {"prompt_tokens/p50": 29.0, "prompt_tokens/mean": 28.0}
    step |= {"pass_at/1": 0.1, "reward_mean": 0.1, "reward_of/agent": 0.1}
    assert names(step, before) == ["prompt_tokens/p50", "reward_mean"]


def test_the_farthest_come_first_and_only_some() -> None:
    before = [{str(number): 1.0 for number in range(20)}] * BEFORE
    step = {str(number): 2.0 + number for number in range(20)}
    assert names(step, before) == [str(number) for number in range(19, 19 - MOST, -1)]
