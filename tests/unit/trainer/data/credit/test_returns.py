"""Returns of sessions and turns from named rewards, and what becomes of sessions that lack one."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.schemas.records import GroupReady, Reward, Trajectory
from seamlessflow.trainer.credit import CreditSettings
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.credit.returns import session_return
from seamlessflow.trainer.data.grouping import Grouping, MemberLost
from seamlessflow.trainer.data.sessions import FailedSession, ValidSession, read
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import differences, step_methods
from seamlessflow.trainer.steps.inputs import batch_rules
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES
from tests.builders.trainer.trajectories import one_turn

BOTH = {"test": 1.0, "format": 0.5}


def judged(*rewards: Reward, **changes: Any) -> Trajectory:
    return replace(one_turn("g-0.0.0", None, group="g-0"), rewards=rewards, **changes)


def named(**values: float) -> tuple[Reward, ...]:
    return tuple(Reward(name=name, value=value) for name, value in values.items())


def session(trajectory: Trajectory, weights: Mapping[str, float]) -> ValidSession | FailedSession:
    return read(trajectory, "tiny", 0, 0, weights=weights)


def test_a_return_is_the_weighted_sum_of_the_last_reward_of_each_name() -> None:
    trajectory = judged(*named(test=0.0, format=1.0, other=9.0), *named(test=2.0))
    assert session_return(trajectory, BOTH) == 2.5
    assert session_return(trajectory, {"test": 1.0, "format": -2.0}) == 0.0
    assert session_return(trajectory, {"other": 1 / 3}) == 3.0


def test_by_default_the_reward_of_this_name_is_the_return() -> None:
    trajectory = judged(*named(reward=0.1, format=1.0))
    assert session_return(trajectory) == 0.1
    assert CreditSettings().reward_weights == {"reward": 1.0}


def test_the_order_of_the_setting_changes_no_digit() -> None:
    values = {"a": 0.1, "b": 0.2, "c": 0.3}
    weights = {"a": 1 / 3, "b": 1 / 7, "c": 1e9}
    other = dict(reversed(weights.items()))
    total = session_return(judged(*named(**values)), weights)
    assert total == session_return(judged(*named(**values)), other)


def test_turn_rewards_of_these_names_add_up_and_missing_ones_are_nothing() -> None:
    of_turn = (Reward(name=name, value=1.0, scope="turn", turn_id="t0") for name in (*BOTH, "x"))
    reward = Reward(name="format", value=1.0, scope="turn", turn_id="t1")
    result = session(judged(*named(test=0, format=0), *of_turn, reward), BOTH)
    assert isinstance(result, ValidSession)
    assert (result.reward, result.turn_rewards) == (0.0, {"t0": 1.5, "t1": 0.5})


def test_a_complete_session_without_one_of_them_names_both_what_it_lacks_and_has() -> None:
    result = session(judged(*named(tests=1.0, format=1.0)), BOTH)
    assert isinstance(result, FailedSession)
    assert (result.cause, result.unrewarded) == ("environment", True)
    assert result.detail == "complete: closed without the reward 'test'; it has 'tests', 'format'"


def test_many_and_long_names_are_cut_in_a_reason() -> None:
    result = session(judged(*named(**{f"{place}" * 99: 1.0 for place in range(8)})), BOTH)
    assert isinstance(result, FailedSession)
    assert result.detail.endswith("and 3 more") and len(result.detail) < 300


def test_a_session_that_the_policy_spoilt_has_nothing_for_those_it_lacks() -> None:
    assert session_return(judged(*named(format=1.0), status="truncated"), BOTH) == 0.5
    assert session_return(judged(status="timeout"), BOTH) == 0.0
    assert session_return(judged(*named(format=1.0), status="pruned"), BOTH) is None


def test_a_reward_of_weight_0_neither_counts_nor_is_needed() -> None:
    weights = CreditSettings(rewards={"test": 1, "format": 0}).reward_weights
    assert session_return(judged(*named(test=2.0)), weights) == 2.0


def test_rewards_that_add_up_to_no_number_spoil_their_session() -> None:
    result = session(judged(*named(test=1e308, format=1e308)), {"test": 1e3, "format": -1e3})
    assert isinstance(result, FailedSession) and not result.unrewarded
    assert result.detail == "its rewards add up to nan"


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({}, "no reward has a weight other than 0"),
        ({"test": 0.0}, "no reward has a weight other than 0"),
        ({" ": 1.0}, "a reward has no name"),
        ({"test": nan}, "finite number"),
        ({"test": inf}, "finite number"),
    ],
)
def test_weights_that_mean_nothing_are_refused(rewards: dict[str, float], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CreditSettings(rewards=rewards)


def test_weights_reach_the_batch() -> None:
    settings = TrainerSettings(trainer={"rewards": BOTH})
    assert batch_rules(settings).rewards == BOTH
    fed = FedDataloader(rules=replace(RULES, rewards=BOTH))
    for name in ("g-0", "g-1"):
        for sample in (0, 1):
            fed.session(name, sample, 0.0, rewards=named(test=sample, format=1.0))
    batch = fed.next()
    assert isinstance(batch, Batch)
    assert [prepared.group.returns() for prepared in batch.groups] == [[0.5, 1.5], [0.5, 1.5]]
    assert [record.reward_mean for record in fed.returned if isinstance(record, GroupReady)] == [
        1.0,
        1.0,
    ]


def test_a_recorded_member_that_lacks_a_reward_now_is_an_error_not_an_endless_wait() -> None:
    grouping = Grouping(fixed={"g-0": ("g-0.0.0",)})
    with pytest.raises(
        MemberLost, match=r"g-0\.0\.0 .* without the reward 'test'.*trainer\.reward"
    ):
        grouping.add(session(judged(*named(reward=1.0)), {"test": 1.0}), now_ms=0)


def test_weights_are_a_method_of_a_step_unless_they_are_the_default() -> None:
    def methods(rewards: dict[str, float]) -> Any:
        return step_methods(TrainerSettings(trainer={"rewards": rewards}))

    plain = step_methods(TrainerSettings())
    assert methods({"reward": 1}) == methods({"reward": 1, "format": 0}) == plain
    assert methods({"a": 1, "b": 2}) == methods({"b": 2, "a": 1})
    (begun,) = differences(plain, methods(BOTH))
    assert begun == "rewards was none, is weighted_sum (trainer.rewards)"
    (changed,) = differences(methods(BOTH), methods({**BOTH, "format": 0.25}))
    assert changed == "rewards has other values (trainer.rewards)"
