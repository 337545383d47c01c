"""Weights of imitated turns, and what the critic of successes learns, against their definitions."""

from dataclasses import replace
from math import exp, tanh
from typing import Any

import numpy as np
import pytest

from seamlessflow.schemas.records import Trajectory, VersionSpan
from seamlessflow.trainer.data.advantages import ReturnRules
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS, Credit
from seamlessflow.trainer.data.credit.phase import with_advantages
from seamlessflow.trainer.data.credit.values import OUTPUTS, value_columns
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from tests.builders.trainer.groups import RULES
from tests.builders.trainer.trajectories import Run, trajectory

CERTAIN = 40.0
"""A logit of a chance that is 1 to the digit."""


def session(
    reward: float,
    viable: list[float],
    left: list[float],
    previous: list[int] | None = None,
    **more: Any,
) -> Episode:
    """Return a session of two tokens a turn; each list has the values of its turns.

    One more value of each is that behind the last token. `previous` gives the turn before each.
    """
    turns = len(viable) - 1
    turns_N = np.repeat(np.arange(turns, dtype=np.int32), 2)
    before = np.arange(turns) - 1 if previous is None else np.array(previous)
    previous_N = np.stack([np.where(before < 0, -1, 2 * before + 1), 2 * np.arange(turns)], -1)
    columns = {
        # Values that no formula names would show up in the results.
        name: np.where(np.arange(2 * turns) % 2 == 0, np.repeat(values[:-1], 2), np.nan)
        for name, values in ((Column.VIABILITY, viable), (Column.EFFICIENCY, left))
    }
    for name, values in ((Column.END_VIABILITY, viable), (Column.END_EFFICIENCY, left)):
        columns[name] = np.where(np.arange(2 * turns) % 2 == 1, values[-1], np.nan)
    return Episode(
        reward, np.zeros(turns), turns_N, lambda: previous_N.reshape(-1), columns, **more
    )


def credited(*episodes: Episode, **rules: Any) -> list[Credit]:
    (group,) = BATCH_ESTIMATORS["habc"].estimate([list(episodes)], ReturnRules(**rules))
    return group


def weights(credit: Credit) -> list[float]:
    """Return the weight of each turn, which both of its tokens have."""
    by_turn = credit.advantages_N.reshape(-1, 2)
    assert (by_turn[:, 0] == by_turn[:, 1]).all()
    return [float(value) for value in by_turn[:, 0]]


def learned(credit: Credit, column: Column) -> dict[int, float]:
    """Return the targets by their places."""
    targets_N = credit.targets[column]
    return {int(place): float(targets_N[place]) for place in np.flatnonzero(~np.isnan(targets_N))}


def test_a_turn_of_a_success_weighs_by_what_it_adds_to_both_values() -> None:
    viable, left = [0.5, -0.3, 1.2], [-3.0, -2.5, -0.4]
    success = session(1.0, viable, left)
    expected = []
    for turn in range(2):
        chance = 1 / (1 + exp(-viable[turn]))
        nearer = -1 + left[turn + 1] - left[turn]
        mixed = (1 - chance) * (viable[turn + 1] - viable[turn]) + chance * nearer
        expected.append(1 + tanh(mixed))
    (credit,) = credited(success)
    assert weights(credit) == pytest.approx([value / np.mean(expected) for value in expected])


@pytest.mark.parametrize(
    ("logit", "viable", "left", "wins"),
    [
        (-CERTAIN, (1.0, 0.5), (-4.0, -1.0), 0),
        (CERTAIN, (1.0, 0.5), (-4.0, -1.0), 1),
    ],
    ids=["no chance", "sure"],
)
def test_the_chance_of_success_decides_which_value_orders_two_successes(
    logit: float, viable: tuple[float, float], left: tuple[float, float], wins: int
) -> None:
    """Without a chance the turn counts that adds to it, with a sure one the turn that hurries."""
    pair = credited(
        *(
            session(1.0, [logit, logit + more], [-2.0, behind])
            for more, behind in zip(viable, left, strict=True)
        )
    )
    (first,), (second,) = map(weights, pair)
    assert (first > second) is (wins == 0)
    # The other value has no part in it.
    values = viable if wins == 0 else [-1 + behind + 2 for behind in left]
    gates = [1 + tanh(value) for value in values]
    assert [first, second] == pytest.approx([gate / np.mean(gates) for gate in gates])


def test_failures_weigh_nothing_and_count_in_the_mean() -> None:
    success, failure = (session(reward, [0.0, 0.0], [0.0, 1.0]) for reward in (1.0, 0.9))
    (win, lost) = credited(success, failure)
    assert weights(win) == [2.0]
    assert weights(lost) == [0.0]
    (win, other) = credited(success, failure, passes=0.9)
    assert weights(win) == weights(other) == [1.0]


def test_without_a_success_all_weights_are_0() -> None:
    failures = [session(0.0, [0.3, 0.1, 0.2], [-1.0, -1.0, 0.0]) for _ in range(3)]
    credits = credited(*failures)
    assert [weight for credit in credits for weight in weights(credit)] == [0.0] * 6
    assert all(not learned(credit, Column.EFFICIENCY) for credit in credits)
    assert all(not learned(credit, Column.END_EFFICIENCY) for credit in credits)
    assert learned(credits[0], Column.VIABILITY) == {0: 0.0, 2: 0.0}


def test_a_demonstration_weighs_1_and_teaches_the_critic_nothing() -> None:
    shown = session(0.0, [5.0, 5.0], [-9.0, 0.0], demonstration=True)
    success = session(1.0, [0.0, 0.0], [0.0, 1.0])
    failure = session(0.0, [0.0, 0.0], [0.0, 1.0])
    first, second, third = credited(shown, success, failure)
    # 1, 1 and 0, divided by their mean.
    assert weights(first) == weights(second) == pytest.approx([1.5])
    assert weights(third) == [0.0]
    assert not any(learned(first, column) for column in first.targets)


def test_while_the_critic_warms_up_all_turns_of_successes_weigh_alike() -> None:
    success = session(1.0, [0.0, 3.0, -3.0], [-1.0, 0.0, -7.0])
    failure = session(0.0, [0.0, 3.0, -3.0], [-1.0, 0.0, -7.0])
    win, lost = credited(success, failure, warming=True)
    assert weights(win) == [2.0, 2.0]
    assert weights(lost) == [0.0, 0.0]
    assert weights(credited(success)[0]) != [1.0, 1.0]


def test_the_critic_learns_outcomes_and_turns_before_each_turn_and_behind_the_last() -> None:
    left = [-3.0, -2.5, -0.4]
    (success,) = credited(session(1.0, [0.5, -0.3, 1.2], left))
    assert learned(success, Column.VIABILITY) == {0: 1.0, 2: 1.0}
    assert learned(success, Column.END_VIABILITY) == {3: 1.0}
    assert learned(success, Column.EFFICIENCY) == pytest.approx({0: -3.5, 2: -1.4})
    assert learned(success, Column.END_EFFICIENCY) == {3: 0.0}


def test_a_session_of_one_turn_is_compared_with_the_place_behind_it() -> None:
    (credit,) = credited(session(1.0, [0.0, 0.8], [-0.5, -0.1]))
    assert weights(credit) == [1.0]
    assert learned(credit, Column.EFFICIENCY) == pytest.approx({0: -1.1})
    slow = session(1.0, [0.0, 0.2], [-0.5, -0.1])
    fast, other = map(weights, credited(session(1.0, [0.0, 0.8], [-0.5, -0.1]), slow))
    gates = [1 + tanh(0.5 * more + 0.5 * -0.6) for more in (0.8, 0.2)]
    assert [*fast, *other] == pytest.approx([gate / np.mean(gates) for gate in gates])


def test_turns_before_the_last_intervention_have_no_label_and_no_weight() -> None:
    """Eight turns; others spoke in the turns 5 to 7, which are no turns of the policy."""
    values = [0.1 * number for number in range(6)]
    (credit,) = credited(session(1.0, values, values, intervened=4))
    assert learned(credit, Column.VIABILITY) == {8: 1.0}
    assert set(learned(credit, Column.EFFICIENCY)) == {8}
    assert learned(credit, Column.END_VIABILITY) == {9: 1.0}
    assert weights(credit) == [0.0, 0.0, 0.0, 0.0, 1.0]
    (failure,) = credited(session(0.0, values, values, intervened=4))
    assert learned(failure, Column.VIABILITY) == {8: 0.0}
    (none,) = credited(session(1.0, values, values, intervened=5))
    assert not learned(none, Column.VIABILITY) and not any(weights(none))


def test_at_a_fork_the_mean_over_the_next_turns_counts() -> None:
    """Turns 1 and 2 follow turn 0; each of them ends its branch."""
    viable, left = [0.0, 1.0, 3.0, 0.5], [-2.0, -1.0, -3.0, 0.0]
    (credit,) = credited(session(1.0, viable, left, previous=[-1, 0, 0]))
    assert learned(credit, Column.EFFICIENCY) == pytest.approx({0: -3.0, 2: -1.0, 4: -1.0})
    assert learned(credit, Column.END_VIABILITY) == {3: 1.0, 5: 1.0}
    chances = [1 / (1 + exp(-value)) for value in viable[:3]]
    next_viable, next_left = [2.0, 0.5, 0.5], [-2.0, 0.0, 0.0]
    gates = [
        1 + tanh((1 - p) * (after - before) + p * (-1 + later - now))
        for p, before, after, now, later in zip(
            chances, viable[:3], next_viable, left[:3], next_left, strict=True
        )
    ]
    assert weights(credit) == pytest.approx([gate / np.mean(gates) for gate in gates])


def test_a_critic_that_is_sure_of_itself_stays_finite() -> None:
    sure = session(1.0, [1e4, -1e4, 1e4], [-1e4, 1e4, -1e4])
    assert np.isfinite(credited(sure)[0].advantages_N).all()


def test_a_value_that_is_no_number_is_not_taken_for_a_turn_without_a_label() -> None:
    broken = credited(session(1.0, [np.nan, 0.0], [0.0, 0.0]), session(1.0, [0.0, 0.0], [0.0, 0.0]))
    assert np.isnan(broken[0].advantages_N).all()


def test_the_tree_says_from_which_turn_on_an_outcome_counts() -> None:
    """The policy samples the turns 1 to 4 and 8 to 10; others spoke in between."""
    runs = [Run([1, 2], "prompt", "t1")]
    for number in (1, 2, 3, 4, 8, 9, 10):
        if number > 1:
            said = Run([3], "prompt", f"t{number}", len(runs) - 1, 1, intervened=number == 8)
            runs.append(said)
        runs.append(Run([5], "policy", f"t{number}", len(runs) - 1, len(runs[-1].ids)))
    chain = trained(trajectory(runs))
    turns = [chain.turns[turn] for turn in chain.tokens.turns_T[chain.tokens.trained_T]]
    labelled = chain.columns[Column.VIABILITY_WEIGHT] > 0
    assert dict(zip(turns, labelled.tolist(), strict=True)) == {
        **dict.fromkeys(("t1", "t2", "t3", "t4"), False),
        **dict.fromkeys(("t8", "t9", "t10"), True),
    }
    assert (chain.columns[Column.EFFICIENCY_WEIGHT] > 0).tolist() == labelled.tolist()
    assert chain.columns[Column.END_VIABILITY_WEIGHT].tolist() == [0, 0, 0, 0, 0, 0, 0.25]
    weights = chain.tokens.advantages_T[chain.tokens.trained_T]
    assert weights.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_a_session_with_tokens_of_another_system_is_a_demonstration() -> None:
    for origin, weight in (("foreign", 1), ("policy", 0)):
        runs = [Run([1, 2], "prompt"), Run([5, 6], origin, "t0", 0, 2)]
        made = replace(trajectory(runs, reward=0.0), loss_mask=bytes([0, 0, 1, 1]))
        spans = (VersionSpan(start=2, version_min=0, version_max=0),)
        chain = trained(replace(made, spans=spans))
        assert chain.tokens.advantages_T.tolist() == [0, 0, weight, weight]
        assert chain.columns[Column.VIABILITY_WEIGHT].any() == (origin == "policy")


def trained(made: Trajectory) -> Chain:
    """Return the chain of a session that is a batch by itself, for a critic that knows nothing."""
    played = read(made, "tiny", 0, 0)
    assert isinstance(played, ValidSession)
    prepared = prepare(Group("g", (played,)), StepClock({}, now=0), replace(RULES, filters={}))
    (chain,) = prepared.chains
    zeros = {name: np.zeros(chain.trained(), np.float32) for name in value_columns(OUTPUTS["habc"])}
    batch = Batch(0, (replace(prepared, chains=(replace(chain, columns=zeros),)),))
    estimate = BATCH_ESTIMATORS["habc"].estimate
    (chain,) = with_advantages(batch, lambda groups: estimate(groups, ReturnRules())).chains()
    return chain
