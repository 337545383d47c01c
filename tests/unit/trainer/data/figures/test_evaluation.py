"""Figures of an evaluation: the mean is over sessions, its error and chances over tasks."""

from statistics import stdev

import pytest

from seamlessflow.trainer.data.figures.chances import PassTerms
from seamlessflow.trainer.data.figures.evaluation import (
    EvaluatedGroup,
    EvaluationFigures,
    figures,
)
from seamlessflow.trainer.data.lengths import SessionCost


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


def test_the_chances_count_returns_by_the_success_that_is_set() -> None:
    groups = [EvaluatedGroup.from_returns(returns) for returns in ([0.5, 0.25], [1.0, 0.5])]
    result = figures(groups, PassTerms(success=0.5, k=(2,)))
    assert (result.pass_at, result.pass_all) == ({2: 1.0}, {2: 0.5})
    assert figures(groups).pass_at == {1: 0.25, 2: 0.5}


def test_the_costs_are_means_over_sessions() -> None:
    cheap, dear = SessionCost(1, 10, 20), SessionCost(3, 50, 200)
    groups = [
        EvaluatedGroup.from_returns([0.0], [cheap]),
        EvaluatedGroup.from_returns([1.0, 1.0, 1.0], [cheap, dear, dear]),
    ]
    result = figures(groups)
    assert (result.turns, result.sampled_tokens, result.prompt_tokens) == (2.0, 30.0, 110.0)


def test_costs_that_a_log_lacks_are_not_known() -> None:
    old = EvaluatedGroup(2, 0.5, 1)
    result = figures([old, EvaluatedGroup.from_returns([1.0], [SessionCost(1, 1, 1)])])
    assert (result.turns, result.prompt_tokens) == (None, None)
    assert result.pass_at == {1: 0.75}
