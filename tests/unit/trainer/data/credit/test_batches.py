"""Advantages of a batch against their definitions."""

from typing import Any

import numpy as np
import pytest

from seamlessflow.trainer.data.advantages import ReturnRules
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS, Credit, token_rewards
from seamlessflow.trainer.data.episodes import Episode

VALUES = [0.3, -0.1, 0.8, 0.2]


def episode(
    reward: float,
    turns: list[int],
    previous: list[int] | None = None,
    turn_rewards: list[float] | None = None,
    **columns: list[float],
) -> Episode:
    """Return a session whose tokens are of these turns; unbranched unless `previous` is given."""
    order = np.arange(len(turns)) - 1 if previous is None else np.array(previous, np.int64)
    rewards = dict(zip(("right", "short"), columns.pop("rewards", []), strict=False))
    return Episode(
        reward,
        np.array(turn_rewards or [0.0] * (max(turns, default=-1) + 1)),
        np.array(turns, np.int32),
        lambda: order,
        {Column(name): np.array(values) for name, values in columns.items()},
        rewards,
    )


def credits_of(
    name: str, *groups: list[Episode], epsilon: float = 0.0, **rules: Any
) -> list[Credit]:
    by_group = BATCH_ESTIMATORS[name].estimate(groups, ReturnRules(epsilon=epsilon, **rules))
    return [credit for group in by_group for credit in group]


def whitened(values: list[float]) -> list[float]:
    return [float(value) for value in (np.array(values) - np.mean(values)) / np.std(values)]


def joined(credited: list[Credit]) -> list[float]:
    return [float(value) for credit in credited for value in credit.advantages_N]


def test_generalized_advantages_are_sums_of_discounted_errors() -> None:
    """A_t = sum over l of (discount lambda)^l delta_t+l, arXiv 1506.02438, equation 16."""
    discount, trace, rewards = 0.9, 0.8, [0.0, 2.0, 0.0, 1.0]
    values = [*VALUES, 0.0]
    deltas = [rewards[t] + discount * values[t + 1] - values[t] for t in range(4)]
    expected = [
        sum((discount * trace) ** (u - t) * deltas[u] for u in range(t, 4)) for t in range(4)
    ]
    session = episode(1.0, [0, 0, 1, 1], turn_rewards=[2.0, 0.0], value=VALUES)
    (credit,) = credits_of("gae", [session], token_discount=discount, trace=trace)
    assert credit.advantages_N == pytest.approx(whitened(expected))
    assert credit.targets[Column.VALUE] == pytest.approx(np.add(expected, VALUES))


def test_without_discount_and_with_lambda_one_the_critic_learns_the_return() -> None:
    (credit,) = credits_of("gae", [episode(3.0, [0, 0, 1, 1], value=VALUES)])
    assert credit.targets[Column.VALUE] == pytest.approx([3.0] * 4)


def test_at_a_fork_the_next_value_is_the_mean_over_the_branches() -> None:
    forked = episode(1.0, [0, 1, 2], previous=[-1, 0, 0], value=[0.0, 4.0, 2.0])
    (credit,) = credits_of("gae", [forked], trace=0.0)
    # delta of the first token: (4 + 2) / 2 - 0; of the leaves: 1 - 4 and 1 - 2
    assert credit.advantages_N == pytest.approx(whitened([3.0, -3.0, -1.0]))
    assert credit.targets[Column.VALUE] == pytest.approx([3.0, 1.0, 1.0])


def test_advantages_over_turns_are_equal_within_a_turn_and_learned_at_its_first_token() -> None:
    session = episode(1.0, [0, 0, 1, 1], turn_rewards=[0.5, 0.0], value=VALUES)
    (credit,) = credits_of("turn_gae", [session], discount=0.9, trace=0.7)
    second = 1.0 - 0.8
    first = 0.5 + 0.9 * 0.8 - 0.3 + 0.9 * 0.7 * second
    assert credit.advantages_N == pytest.approx(whitened([first, first, second, second]))
    assert credit.targets[Column.VALUE] == pytest.approx(
        [first + 0.3, np.nan, second + 0.8, np.nan], nan_ok=True
    )


def test_a_turn_that_another_leaves_within_its_completion_does_not_get_the_return_twice() -> None:
    """The second turn follows the first token of the first, whose second token ends its branch."""
    session = episode(1.0, [0, 0, 1], previous=[-1, 0, 0], value=[0.0, 0.0, 0.0])
    (credit,) = credits_of("turn_gae", [session])
    assert credit.targets[Column.VALUE] == pytest.approx([1.0, np.nan, 1.0], nan_ok=True)


def test_reinforce_compares_each_return_with_the_whole_batch() -> None:
    first, second = episode(1.0, [0, 0]), episode(0.0, [0])
    assert joined(credits_of("reinforce_pp", [first], [second])) == pytest.approx(
        whitened([1, 1, 0])
    )


def test_the_baseline_form_first_takes_the_mean_of_the_group() -> None:
    groups = [[episode(5.0, [0]), episode(3.0, [0])], [episode(1.0, [0]), episode(0.0, [0])]]
    advantages = joined(credits_of("reinforce_pp_baseline", *groups))
    assert advantages == pytest.approx(whitened([1.0, -1.0, 0.5, -0.5]))


def test_a_penalty_lowers_the_returns_of_all_tokens_before() -> None:
    session = episode(1.0, [0, 0], proximal=[-1.0, -2.0], reference=[-1.5, -4.0])
    rewards = token_rewards(session, ReturnRules(kl_penalty=0.1), session.reward)
    assert rewards == pytest.approx([-0.05, 0.8])
    advantages = joined(credits_of("reinforce_pp", [session], kl_penalty=0.1))
    assert advantages == pytest.approx(whitened([0.75, 0.8]))


def test_a_student_gains_where_the_teacher_finds_its_token_likelier() -> None:
    session = episode(0.0, [0, 0], proximal=[-1.0, -2.0], teacher=[-0.5, -3.0])
    assert joined(credits_of("distill", [session])) == pytest.approx([0.5, -1.0])


@pytest.mark.parametrize("name", BATCH_ESTIMATORS)
def test_a_session_without_a_trained_token_has_no_advantage(name: str) -> None:
    columns = {str(column): [0.5, 0.1] for column in BATCH_ESTIMATORS[name].columns}
    other = episode(0.0, [0, 0], None, None, **columns)
    credited = credits_of(name, [episode(1.0, [], previous=[]), other])
    assert [len(credit.advantages_N) for credit in credited] == [0, 2]


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline", "gae", "turn_gae"])
def test_equal_returns_give_no_advantage(name: str) -> None:
    same = [episode(1.0, [0, 0], value=[0.0, 0.0]) for _ in range(3)]
    assert joined(credits_of(name, same)) == pytest.approx([0.0] * 6)


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline", "gae", "turn_gae"])
def test_advantages_of_a_batch_that_differ_by_noise_stay_small(name: str) -> None:
    group = [episode(value, [0], value=[0.5]) for value in (0.5, 0.5 + 1e-7, 0.5, 0.5)]
    assert np.abs(joined(credits_of(name, group, epsilon=ReturnRules().epsilon))).max() < 0.08
    assert np.abs(joined(credits_of(name, group))).max() > 1


def test_advantages_of_a_batch_may_be_scaled_by_the_deviation_of_a_sample() -> None:
    group = [episode(1.0, [0]), episode(0.0, [0])]
    assert joined(credits_of("reinforce_pp", group)) == pytest.approx([1.0, -1.0])
    sample = credits_of("reinforce_pp", group, deviation="sample")
    assert joined(sample) == pytest.approx([np.sqrt(0.5), -np.sqrt(0.5)])
    assert joined(credits_of("reinforce_pp", [episode(1.0, [0])], deviation="sample")) == [0.0]


def test_gdpo_keeps_apart_what_a_sum_of_rewards_makes_equal() -> None:
    """Each reward counts by how rare it is in the group, and by its weight."""
    group = [episode(0.0, [0], rewards=values) for values in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0])]
    other = [episode(0.0, [0], rewards=values) for values in ([1.0, 1.0], [1.0, 0.0])]
    advantages = joined(credits_of("gdpo", group, other, rewards={"right": 1.0, "short": 0.5}))
    # Of right 2, -1, -1 over the root of 2, and nothing in the other group, where all have it;
    # of short -1, 2, -1 over that root, and 1, -1.
    sums = [1.5 / np.sqrt(2), 0.0, -1.5 / np.sqrt(2), 0.5, -0.5]
    assert advantages == pytest.approx(whitened(sums))
    summed = joined(credits_of("gdpo", group, other, rewards={"sum": 1.0}))
    assert summed == [0.0] * 5, "rewards that no session has"


def test_gdpo_in_one_group_with_one_reward_is_grpo() -> None:
    group = [episode(0.0, [0], rewards=[value]) for value in (1.0, 0.0, 0.0, 0.5)]
    values = np.array([1.0, 0.0, 0.0, 0.5])
    expected = (values - values.mean()) / values.std()
    assert joined(credits_of("gdpo", group, rewards={"right": 3.0})) == pytest.approx(expected)


@pytest.mark.parametrize("noise", [2e-8, 6e-8, 1e-7])
def test_the_noise_of_judges_stays_small_in_gdpo_beside_noise_and_beside_a_true_difference(
    noise: float,
) -> None:
    """The second division would make noise as large as a true difference is."""
    values = ([0.5, 1.0], [0.5 + noise, 1.0], [0.5, 1.0 - noise], [0.5, 1.0])
    group = [episode(0.0, [0], rewards=rewards) for rewards in values]
    true = [episode(0.0, [0], rewards=rewards) for rewards in ([1.0, 0.3], [0.0, 0.3])]
    rules: dict[str, Any] = {
        "epsilon": ReturnRules().epsilon,
        "rewards": {"right": 1.0, "short": 0.5},
    }
    assert np.abs(joined(credits_of("gdpo", group, group, **rules))).max() < 0.15
    beside = joined(credits_of("gdpo", group, true, **rules))
    assert np.abs(beside[:4]).max() < 0.15
    equal = [episode(0.0, [0], rewards=[0.5, 1.0]) for _ in group]
    assert beside[4:] == pytest.approx(
        joined(credits_of("gdpo", equal, true, **rules))[4:], rel=0.02
    )


def test_over_the_batch_a_group_counts_as_much_as_its_returns_differ() -> None:
    apart = [episode(value, [0, 0]) for value in (1.0, 0.0)]
    near = [episode(value, [0]) for value in (0.52, 0.48)]
    advantages = joined(credits_of("grpo_batch", apart, near))
    deviation = np.std([1.0, 0.0, 0.52, 0.48])
    assert advantages == pytest.approx(np.array([0.5, 0.5, -0.5, -0.5, 0.02, -0.02]) / deviation)
    equal = [episode(1.0, [0]), episode(1.0, [0])]
    assert joined(credits_of("grpo_batch", equal, equal)) == [0.0] * 4
    # Sessions without a trained token count in the deviation.
    silent = [episode(value, []) for value in (3.0, 0.0)]
    with_silent = joined(credits_of("grpo_batch", near, silent))
    assert with_silent == pytest.approx(np.array([0.02, -0.02]) / np.std([0.52, 0.48, 3.0, 0.0]))
