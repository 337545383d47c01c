"""Figures of a batch: by the sets of its tasks, by named rewards, and its variety."""

from dataclasses import replace

import pytest

from seamlessflow.schemas.records import Reward
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.figures.of_batch import MOST_SHOWN, facts, reward_figures, variety
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from tests.builders.trainer.groups import NOW, group, session, two_groups
from tests.builders.trainer.metric_names import known
from tests.builders.trainer.trajectories import one_turn


def of_set(name: str, split: str, *rewards: float) -> Prepared:
    """Return a group whose task is of a set."""
    made = group(name, *rewards)
    sessions = tuple(replace(one, source=replace(one.source, split=split)) for one in made.sessions)
    return Prepared(
        replace(made, sessions=sessions), tuple(chain for one in sessions for chain in one.chains)
    )


def by_source(*groups: Prepared) -> dict[str, float]:
    found = facts(Batch(0, groups), NOW)
    return {name: value for name, value in found.items() if "_from/" in name}


def test_rewards_and_groups_are_counted_by_the_set_of_the_task() -> None:
    found = by_source(
        of_set("a", "math", 1.0, 0.0), of_set("b", "code", 0.25), of_set("c", "math", 1.0, 1.0)
    )
    assert found == {
        "groups_from/math": 2,
        "reward_from/math": 0.75,
        "groups_from/code": 1,
        "reward_from/code": 0.25,
    }
    assert all(known(name) for name in found)


def test_sessions_that_were_opened_without_a_set_have_none() -> None:
    assert by_source(of_set("a", "", 1.0)) == {}


WEIGHTS = {"test": 1.0, "style": -0.5}


def judged(*rewards: Reward) -> ValidSession:
    trajectory = replace(one_turn("s", None), rewards=rewards)
    found = read(trajectory, "tiny", 0, 0, weights={one.name: 1.0 for one in rewards})
    assert isinstance(found, ValidSession)
    return found


def rewards(test: float, style: float, **other: float) -> ValidSession:
    more = (Reward(name=name, value=value) for name, value in other.items())
    by_model = Reward(name="style", value=style, source="model")
    found = judged(Reward(name="test", value=test, source="verifier"), by_model, *more)
    return replace(found, reward=test - 0.5 * style)


def test_each_named_reward_has_mean_and_quantiles_over_the_sessions_that_have_it() -> None:
    found = reward_figures([rewards(0, 4), rewards(1, 4, seen=7), rewards(2, 4)], WEIGHTS)
    assert (found["reward/test"], found["reward/test/p50"], found["reward/test/p90"]) == (1, 1, 1.8)
    assert (found["reward/style"], found["reward/style/p10"]) == (4, 4)
    assert found["reward/seen"] == 7
    assert all(known(name) for name in found)


def test_the_parts_of_sources_add_up_to_the_mean_return() -> None:
    group = Group("g", (rewards(0, 4, seen=9), rewards(1, 2)))
    told = facts(Batch(0, (Prepared(group, ()),)), NOW, WEIGHTS)
    assert (told["reward_of/verifier"], told["reward_of/model"]) == (0.5, -1.5)
    assert told["reward_mean"] == -1.0
    assert "reward_of/agent" not in told


def test_returns_have_their_quantiles() -> None:
    found = reward_figures([session(f"{value}", value) for value in range(101)], {"reward": 1.0})
    assert [found[f"return/p{of}"] for of in (10, 50, 90, 99)] == [10, 50, 90, 99]
    assert "return/mean" not in found
    assert found["reward_of/agent"] == found["reward/reward"] == 50


def test_names_that_agents_make_up_are_bounded_and_fit_a_file_of_metrics() -> None:
    made_up = {f"n{number}": 1.0 for number in range(100)}
    found = reward_figures([rewards(1, 1, **made_up)], WEIGHTS)
    names = {name.split("/")[1] for name in found if name.startswith("reward/")}
    assert len(names) == MOST_SHOWN and {"test", "style"} <= names

    odd = judged(Reward(name="a b=c/d", value=1.0, source="x y"))
    found = reward_figures([odd], {"a b=c/d": 2.0})
    assert (found["reward/a_b_c_d"], found["reward_of/x_y"]) == (1.0, 2.0)


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
    chains = tuple(chain for one in sessions.sessions for chain in one.chains)
    found = variety([Prepared(sessions, chains)])
    assert found["equal_share"] == pytest.approx(2 / 3)
    assert found["divided_share"] == 0
    assert found["largest_group_share"] == 1


def test_a_group_dominates_by_its_trained_tokens() -> None:
    one, other = (
        Prepared(made, tuple(chain for of in made.sessions for chain in of.chains))
        for made in (group("g", 0.0, 1.0, length=3), group("h", 0.0, 1.0, length=9))
    )
    assert variety([one, other])["largest_group_share"] == pytest.approx(0.75)
    assert variety([replace(one, chains=()), replace(other, chains=())])["largest_group_share"] == 0


def test_nothing_is_told_of_no_session() -> None:
    assert variety([]) == {}


def test_a_session_of_several_chains_is_divided() -> None:
    (one, _) = two_groups()
    sessions = (
        tuple(replace(session, chains=one.chains[:2]) for session in one.group.sessions[:1])
        + one.group.sessions[1:2]
    )
    found = variety([Prepared(replace(one.group, sessions=sessions), one.chains)])
    assert found["divided_share"] == 0.5
