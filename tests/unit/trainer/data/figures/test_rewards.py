"""Figures of rewards: of each name and source, and the spread of returns."""

from dataclasses import replace

import pytest

from seamlessflow.schemas.records import Reward
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.figures.rewards import MOST_SHOWN, reward_figures
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.metrics.names import known
from tests.builders.trainer.groups import NOW, session
from tests.builders.trainer.trajectories import one_turn

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
