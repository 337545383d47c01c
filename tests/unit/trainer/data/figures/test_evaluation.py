"""Figures of an evaluation: the mean is over sessions, its error and chances over tasks."""

from statistics import stdev

import pytest

from seamlessflow.trainer.data.figures.evaluation import (
    EvaluatedGroup,
    EvaluationFigures,
    figures,
    pass_at_k,
    passed,
)


def figures_of(*groups: tuple[int, float]) -> EvaluationFigures:
    return figures([EvaluatedGroup(*group, 0) for group in groups])


def test_with_one_session_a_task_the_error_is_that_of_independent_samples() -> None:
    rewards = [0.0, 1.0, 0.25, 0.5, 1.0]
    evaluation = figures_of(*((1, reward) for reward in rewards))
    assert evaluation.reward == pytest.approx(0.55)
    assert evaluation.error == pytest.approx(stdev(rewards) / 5**0.5)


def test_more_sessions_of_tasks_that_agree_are_no_more_certain() -> None:
    once, eight_times = (
        figures_of((1, 0.0), (1, 1.0), (1, 1.0)),
        figures_of((8, 0.0), (8, 1.0), (8, 1.0)),
    )
    assert once.error == pytest.approx(eight_times.error)


def test_a_task_with_more_sessions_counts_more_in_the_mean() -> None:
    assert figures_of((3, 1.0), (1, 0.0)).reward == 0.75
    # sqrt(2 / 1 * ((3 * 0.25)^2 + (1 * -0.75)^2)) / 4
    assert figures_of((3, 1.0), (1, 0.0)).error == pytest.approx((2 * 2 * 0.75**2) ** 0.5 / 4)


def test_less_than_two_groups_have_no_error_and_none_no_mean() -> None:
    assert figures_of((4, 0.5)).error is None
    assert figures_of() == EvaluationFigures() == figures_of((0, 0.0))
    assert figures_of((1, 1.0)).pass_at == {1: 0.0}


def test_pass_at_k_is_the_share_of_choices_of_k_sessions_of_which_one_passes() -> None:
    # Of the six pairs of four sessions of which one passes, three have it.
    assert pass_at_k([(4, 1)]) == {1: 0.25, 2: 0.5, 4: 1.0}
    assert pass_at_k([(2, 2), (3, 0)]) == {1: 0.5, 2: 0.5}
    assert pass_at_k([]) == pass_at_k([(0, 0)]) == {}


def test_a_session_passes_with_a_return_of_one() -> None:
    assert passed([0.0, 0.99, 1.0, 2.5, -1.0]) == 2
