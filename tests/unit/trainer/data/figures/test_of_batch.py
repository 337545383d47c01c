"""Figures of a batch: by the sets of its tasks, by named rewards, and its variety."""

from dataclasses import replace

import pytest

from seamlessflow.schemas.records import Reward
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.figures.of_batch import MOST_SHOWN, facts, reward_figures, variety
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from tests.builders.trainer.groups import NOW, group, session, two_groups
from tests.builders.trainer.metric_names import is_listed
from tests.builders.trainer.trajectories import one_turn


def of_set(name: str, split: str, *rewards: float) -> Prepared:
    """Return a group whose task is of a set."""
    made = group(name, *rewards)
    sessions = tuple(
        replace(member, source=replace(member.source, split=split)) for member in made.sessions
    )
    return Prepared(
        replace(made, sessions=sessions),
        tuple(chain for member in sessions for chain in member.chains),
    )


def by_source(*groups: Prepared) -> dict[str, float]:
    figures = facts(Batch(0, groups), NOW)
    return {name: value for name, value in figures.items() if "_from/" in name}


def test_rewards_and_groups_are_counted_by_the_set_of_the_task() -> None:
    figures = by_source(
        of_set("a", "math", 1.0, 0.0), of_set("b", "code", 0.25), of_set("c", "math", 1.0, 1.0)
    )
    assert figures == {
        "groups_from/math": 2,
        "reward_from/math": 0.75,
        "groups_from/code": 1,
        "reward_from/code": 0.25,
    }
    assert all(is_listed(name) for name in figures)


def test_sessions_that_were_opened_without_a_set_have_none() -> None:
    assert by_source(of_set("a", "", 1.0)) == {}


WEIGHTS = {"test": 1.0, "style": -0.5}


def judged(*rewards: Reward) -> ValidSession:
    trajectory = replace(one_turn("s", None), rewards=rewards)
    result = read(trajectory, "tiny", 0, 0, weights={reward.name: 1.0 for reward in rewards})
    assert isinstance(result, ValidSession)
    return result


def rewards(test: float, style: float, **other: float) -> ValidSession:
    more = (Reward(name=name, value=value) for name, value in other.items())
    by_model = Reward(name="style", value=style, source="model")
    result = judged(Reward(name="test", value=test, source="verifier"), by_model, *more)
    return replace(result, reward=test - 0.5 * style)


def test_each_named_reward_has_mean_and_quantiles_over_the_sessions_that_have_it() -> None:
    figures = reward_figures([rewards(0, 4), rewards(1, 4, seen=7), rewards(2, 4)], WEIGHTS)
    assert (figures["reward/test"], figures["reward/test/p50"], figures["reward/test/p90"]) == (
        1,
        1,
        1.8,
    )
    assert (figures["reward/style"], figures["reward/style/p10"]) == (4, 4)
    assert figures["reward/seen"] == 7
    assert all(is_listed(name) for name in figures)


def test_the_parts_of_sources_add_up_to_the_mean_return() -> None:
    group = Group("g", (rewards(0, 4, seen=9), rewards(1, 2)))
    figures = facts(Batch(0, (Prepared(group, ()),)), NOW, WEIGHTS)
    assert (figures["reward_of/verifier"], figures["reward_of/model"]) == (0.5, -1.5)
    assert figures["reward_mean"] == -1.0
    assert "reward_of/agent" not in figures


def test_returns_have_their_quantiles() -> None:
    figures = reward_figures([session(f"{value}", value) for value in range(101)], {"reward": 1.0})
    assert [figures[f"return/p{percentile}"] for percentile in (10, 50, 90, 99)] == [10, 50, 90, 99]
    assert "return/mean" not in figures
    assert figures["reward_of/agent"] == figures["reward/reward"] == 50


def test_names_that_agents_make_up_are_bounded_and_fit_a_file_of_metrics() -> None:
    made_up = {f"n{number}": 1.0 for number in range(100)}
    figures = reward_figures([rewards(1, 1, **made_up)], WEIGHTS)
    names = {name.split("/")[1] for name in figures if name.startswith("reward/")}
    assert len(names) == MOST_SHOWN and {"test", "style"} <= names

    odd = judged(Reward(name="a b=c/d", value=1.0, source="x y"))
    figures = reward_figures([odd], {"a b=c/d": 2.0})
    assert (figures["reward/a_b_c_d"], figures["reward_of/x_y"]) == (1.0, 2.0)


def test_a_batch_without_sessions_has_no_figures_of_rewards() -> None:
    assert reward_figures([], WEIGHTS) == {}
    assert facts(Batch(0, ()), NOW)["reward_mean"] == pytest.approx(0.0)


def test_sessions_with_the_same_tokens_are_equal() -> None:
    made = group("g", 0.0, 1.0, 0.0)
    first, second, third = made.sessions
    (chain,) = second.chains
    ids_T = chain.tokens.ids_T.copy()
    ids_T[chain.tokens.trained_T] += 1
    other = replace(second, chains=(replace(chain, tokens=replace(chain.tokens, ids_T=ids_T)),))
    sessions = replace(made, sessions=(first, other, third))
    chains = tuple(chain for member in sessions.sessions for chain in member.chains)
    figures = variety([Prepared(sessions, chains)])
    assert figures["equal_share"] == pytest.approx(2 / 3)
    assert figures["divided_share"] == 0
    assert figures["largest_group_share"] == 1


def test_a_group_dominates_by_its_trained_tokens() -> None:
    prepared, other = (
        Prepared(made, tuple(chain for member in made.sessions for chain in member.chains))
        for made in (group("g", 0.0, 1.0, length=3), group("h", 0.0, 1.0, length=9))
    )
    assert variety([prepared, other])["largest_group_share"] == pytest.approx(0.75)
    assert (
        variety([replace(prepared, chains=()), replace(other, chains=())])["largest_group_share"]
        == 0
    )


def test_nothing_is_told_of_no_session() -> None:
    assert variety([]) == {}


def test_a_session_of_several_chains_is_divided() -> None:
    (prepared, _) = two_groups()
    sessions = (
        tuple(
            replace(session, chains=prepared.chains[:2]) for session in prepared.group.sessions[:1]
        )
        + prepared.group.sessions[1:2]
    )
    figures = variety([Prepared(replace(prepared.group, sessions=sessions), prepared.chains)])
    assert figures["divided_share"] == 0.5
