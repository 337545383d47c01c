"""Chances to pass: unbiased by task, with intervals over tasks."""

from itertools import combinations
from statistics import fmean

import numpy as np
import pytest

from seamlessflow.infra.settings import SharedEvaluationSection
from seamlessflow.trainer.data.figures.chances import (
    PASSED,
    all_pass,
    chances,
    interval,
    one_passes,
    pass_at_k,
    passed,
    wilson,
)
from tests.seed import seed


@pytest.mark.parametrize(("sessions", "passing"), [(1, 0), (1, 1), (4, 1), (5, 3), (6, 6)])
def test_both_chances_are_shares_of_all_choices_of_k_sessions(sessions: int, passing: int) -> None:
    results = [True] * passing + [False] * (sessions - passing)
    for k in range(1, sessions + 1):
        choices = list(combinations(results, k))
        assert one_passes(sessions, passing, k) == pytest.approx(fmean(map(any, choices)))
        assert all_pass(sessions, passing, k) == pytest.approx(fmean(map(all, choices)))


def test_pass_at_k_is_the_share_of_choices_of_k_sessions_of_which_one_passes() -> None:
    # Of the six pairs of four sessions of which one passes, three have it.
    assert pass_at_k([(4, 1)]) == {1: 0.25, 2: 0.5, 4: 1.0}
    assert pass_at_k([(2, 2), (3, 0)]) == {1: 0.5, 2: 0.5}
    assert pass_at_k([]) == pass_at_k([(0, 0)]) == {}


def test_chances_are_counted_for_the_chosen_k_that_every_task_has_sessions_for() -> None:
    counts = [(6, 3), (5, 0), (0, 0)]
    assert [*chances(counts).at] == [1, 2, 4]
    assert [*chances(counts, (5, 3, 3, 6)).all] == [3, 5]
    assert chances([], (1,)).at == {}


def test_the_estimates_are_without_bias() -> None:
    generator = np.random.default_rng(seed)
    chance, k, n = 0.3, 3, 6
    passing = generator.binomial(n, chance, size=20_000)
    at, every = (
        fmean(estimate(n, int(c), k) for c in passing) for estimate in (one_passes, all_pass)
    )
    assert at == pytest.approx(1 - (1 - chance) ** k, abs=0.02)
    assert every == pytest.approx(chance**k, abs=0.01)


def test_a_session_passes_with_the_return_that_counts_as_success() -> None:
    returns = [0.0, 0.99, 1.0, 2.5, -1.0]
    assert (passed(returns), passed(returns, 0.5), passed(returns, 2.5)) == (2, 3, 1)
    assert SharedEvaluationSection().passing("test") == (PASSED, ())


def test_the_interval_of_a_proportion_of_tasks_is_wilsons() -> None:
    # Newcombe (1998), table I: 81 of 263 and 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert interval([1.0] * 15 + [0.0] * 5) == wilson(0.75, 20)


def test_tasks_that_agree_leave_a_doubt() -> None:
    low, high = interval([0.5] * 10)
    assert low < 0.5 < high
    assert interval([1.0]) == pytest.approx((0.2065, 1.0), abs=5e-5)


def test_the_interval_of_several_sessions_a_task_is_a_bootstrap_over_tasks() -> None:
    generator = np.random.default_rng(seed)
    shares = (generator.integers(0, 5, size=400) / 4).tolist()
    low, high = interval(shares)
    error = float(np.std(shares)) / len(shares) ** 0.5
    assert (low, high) == pytest.approx(
        (fmean(shares) - 1.96 * error, fmean(shares) + 1.96 * error), abs=0.25 * error
    )
    assert interval(shares) == (low, high), "the same tasks have the same interval"
