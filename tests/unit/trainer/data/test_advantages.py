"""Advantages against their definitions."""

from typing import Any

import numpy as np
import pytest

from seamlessflow.trainer.credit import COMPARED
from seamlessflow.trainer.data.advantages import (
    ESTIMATORS,
    ReturnRules,
    estimator,
    grpo,
    grpo_unscaled,
    maxrl,
    rloo,
    turn_returns,
    varied,
)
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.unread import READERS

RETURNS = np.array([1.0, 0.0, 0.0, 0.5])
EXACT = ReturnRules(epsilon=0.0)


def test_grpo_is_the_return_in_standard_deviations_from_the_groups_mean() -> None:
    expected = (RETURNS - RETURNS.mean()) / RETURNS.std()
    assert grpo(RETURNS, EXACT) == pytest.approx(expected)
    scaled = (RETURNS - RETURNS.mean()) / (RETURNS.std() + 0.25)
    assert grpo(RETURNS, ReturnRules(epsilon=0.25)) == pytest.approx(scaled)


def test_the_deviation_of_a_sample_makes_smaller_advantages_most_of_all_in_pairs() -> None:
    pair = np.array([1.0, 0.0])
    sample = ReturnRules(epsilon=0.0, deviation="sample")
    assert grpo(pair, EXACT) == pytest.approx([1.0, -1.0])
    assert grpo(pair, sample) == pytest.approx([np.sqrt(0.5), -np.sqrt(0.5)])
    assert grpo(RETURNS, sample) == pytest.approx(grpo(RETURNS, EXACT) * np.sqrt(3 / 4))
    assert grpo(RETURNS[:1], sample).tolist() == [0.0]


def test_unscaled_grpo_keeps_the_size_of_the_returns() -> None:
    assert grpo_unscaled(RETURNS, EXACT) == pytest.approx([0.625, -0.375, -0.375, 0.125])


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    others = [np.delete(RETURNS, place).mean() for place in range(4)]
    assert rloo(RETURNS, EXACT) == pytest.approx(RETURNS - others)


def test_maxrl_divides_by_the_mean_so_that_rare_successes_count_most() -> None:
    assert maxrl(RETURNS, EXACT) == pytest.approx((RETURNS - 0.375) / 0.375)
    rare, common = np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 1, 0])
    assert maxrl(rare, EXACT) == pytest.approx([3.0, -1.0, -1.0, -1.0])
    assert maxrl(common, EXACT) == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1.0])
    assert maxrl(np.zeros(4), ReturnRules()).tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="needs returns of at least 0, as chances are, and one is"):
        maxrl(np.array([1.0, -0.5]), EXACT)


def episode(reward: float, *turns: float, tokens: int = 2) -> Episode:
    """Return an unbranched session with so many tokens in each turn."""
    count = len(turns) * tokens
    turns_N = np.repeat(np.arange(len(turns), dtype=np.int32), tokens)
    return Episode(reward, np.array(turns), turns_N, lambda: np.arange(count) - 1)


FORKED = Episode(
    reward=1.0,
    turn_rewards_K=np.array([0.0, 2.0, 4.0]),
    turns_N=np.array([0, 0, 1, 2], np.int32),
    previous=lambda: np.array([-1, 0, 1, 1]),
)
"""A turn of two tokens that two turns of one token follow."""


def advantages_of(
    name: str, *episodes: Episode, epsilon: float = 0.0, **settings: Any
) -> list[list[float]]:
    advantages = estimator(name, ReturnRules(epsilon=epsilon, **settings))(episodes)
    return [advantages_N.tolist() for advantages_N in advantages]


@pytest.mark.parametrize("name", ["grpo", "grpo_unscaled", "rloo"])
def test_all_tokens_of_a_session_get_its_advantage(name: str) -> None:
    first, second = advantages_of(name, episode(1.0, 0, 0), episode(0.0, 5))
    assert first == [first[0]] * 4
    assert second == [second[0]] * 2
    assert first[0] > 0 > second[0]


def test_a_turns_return_has_the_later_rewards_and_at_the_end_the_sessions() -> None:
    played, rules = episode(1.0, 0, 2, 4), ReturnRules(discount=0.5)
    assert turn_returns(played, rules) == {2: 5, 1: 4.5, 0: 2.25}
    assert turn_returns(played, rules, outcome=0) == {2: 4, 1: 4, 0: 2}


def test_a_turns_return_is_the_mean_over_the_turns_that_follow_it() -> None:
    assert turn_returns(FORKED, ReturnRules(discount=0.5)) == {2: 5, 1: 3, 0: 2}


def test_turns_are_compared_with_those_of_the_same_depth() -> None:
    # Returns at depth 0: 3, 1; at depth 1: 2; the only turn there has no advantage.
    assert advantages_of("turn", episode(1.0, 1, 1), episode(0.0, 1)) == [[1, 1, 0, 0], [-1, -1]]
    # Depth 0: 7/3 of the fork's mean is 4, and 3; depth 1: 3, 5, 1.
    fork, other = advantages_of("turn", FORKED, episode(1.0, 2, 0, tokens=1))
    assert fork[:2] == [1, 1]
    assert fork[2:] == pytest.approx([0, np.sqrt(1.5)])
    assert other == pytest.approx([-1, -np.sqrt(1.5)])


def test_session_and_turn_adds_both_with_their_weights() -> None:
    group = episode(1.0, 0, 1), episode(0.0, 2, 1)
    # Turn rewards alone: 1 and 3 at depth 0, equal at depth 1.
    assert advantages_of("session_and_turn", *group) == [[0, 0, 1, 1], [0, 0, -1, -1]]
    weighted = advantages_of("session_and_turn", *group, session_weight=0.5, turn_weight=2)
    assert weighted == [[-1.5, -1.5, 0.5, 0.5], [1.5, 1.5, -0.5, -0.5]]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_sessions_without_a_trained_token_count_for_the_others(name: str) -> None:
    silent = Episode(0.0, np.zeros(0), np.zeros(0, np.int32), lambda: np.zeros(0, np.int64))
    _, advantages_N = advantages_of(name, silent, episode(1.0, 0.0))
    expected = (
        0 if name == "turn" else advantages_of(name, episode(0.0, 0.0), episode(1.0, 0.0))[1][0]
    )
    assert advantages_N == [expected] * 2


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("returns", [[0.3], [0.1 + 0.2, 0.3], [1.0, 1.0, 1.0]])
def test_equal_returns_have_no_advantage(name: str, returns: list[float]) -> None:
    advantages = advantages_of(name, *(episode(value, 1.0) for value in returns))
    # Exactly: the filter `zero_variance` takes anything else for an advantage.
    assert np.array_equal(advantages, np.zeros((len(returns), 2)))
    assert not varied(np.array(returns))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("noise", [2e-8, 6e-8, 1e-7])
def test_the_noise_of_a_judge_makes_no_signal_of_full_size(name: str, noise: float) -> None:
    """Float32 leaves differences of about 6e-8 near a half."""
    returns = (0.5, 0.5 + noise, 0.5, 0.5)
    advantages = advantages_of(
        name, *(episode(value, 0.0) for value in returns), epsilon=ReturnRules().epsilon
    )
    largest = float(np.abs(advantages).max())
    assert largest < 0.08, "add rules.epsilon to what divides the returns"


@pytest.mark.parametrize("name", ["grpo", "turn", "session_and_turn"])
def test_a_true_difference_keeps_its_advantage_beside_the_epsilon(name: str) -> None:
    group = episode(1.0, 1.0), episode(0.0, 0.0), episode(0.0, 0.5)
    by_default = advantages_of(name, *group, epsilon=ReturnRules().epsilon)
    assert np.array(by_default) == pytest.approx(np.array(advantages_of(name, *group)), rel=1e-5)


def test_an_estimator_that_gives_a_lone_session_nothing_is_listed_as_comparing_sessions() -> None:
    """A run of such an estimator refuses groups of one."""
    lone = [episode(1.0, 0.5, 2.0)]
    silent = {name for name in ESTIMATORS if not np.any(estimator(name, ReturnRules())(lone))}
    # These two compare turns of equal depth, which the branches of one session have too.
    assert silent == {*COMPARED, "turn", "session_and_turn"}, "COMPARED in trainer/credit.py"


@pytest.mark.parametrize(
    ("setting", "value"), [("epsilon", 0.5), ("deviation", "sample"), ("discount", 0.5)]
)
def test_a_setting_that_an_estimator_reads_is_not_refused_beside_it(
    setting: str, value: Any
) -> None:
    group = episode(1.0, 1.0, 0.5), episode(0.0, 0.0), episode(0.0, 0.5, 0.25)
    usual: dict[str, Any] = {"epsilon": 0.0, "deviation": "population", "discount": 1.0}
    reading = {
        name
        for name in ESTIMATORS
        if advantages_of(name, *group, **usual)
        != advantages_of(name, *group, **{**usual, setting: value})
    }
    allowed = {
        name
        for reader in READERS["returns", setting]
        if reader.setting == "advantage"
        for name in reader.values
    }
    assert reading
    assert reading <= allowed, "READERS in trainer/unread.py"


def test_a_return_restarts_at_a_turn_of_a_lower_reward_and_reaches_no_earlier_turn() -> None:
    """Errors at turns 2 and 4 of 5, by hand: the session ended behind turn 4."""
    played = episode(0.0, 1.0, 0.1, 1.0, 0.1)
    rules = ReturnRules(discount=0.5, restart_below=0.9)
    assert turn_returns(played, rules) == pytest.approx({3: 0.1, 2: 1.0, 1: 0.1, 0: 1.0})
    without = ReturnRules(discount=0.5)
    expected = {3: 0.1, 2: 1.05, 1: 0.625, 0: 1.3125}
    assert turn_returns(played, without) == pytest.approx(expected)


def test_a_restart_on_a_branch_leaves_the_other_branch_as_it_is() -> None:
    # The turns behind the fork have 2 and 4; the first restarts, and adds 0 to the mean.
    rules = ReturnRules(discount=0.5, restart_below=3.0)
    assert turn_returns(FORKED, rules) == {2: 5, 1: 2, 0: 0}
    higher = ReturnRules(discount=0.5, restart_below=-1.0)
    assert turn_returns(FORKED, higher) == turn_returns(FORKED, ReturnRules(discount=0.5))
