"""Rewards in what a judge returns, and the meaning of its failures."""

import math
import urllib.error

import pytest

from seamlessflow.producers.agents.harness.command import CommandFailed
from seamlessflow.producers.agents.result import BadResult
from seamlessflow.recorded.judging.verdict import (
    Rewarded,
    failed_try,
    reward_in,
    turns_rewarded,
)


@pytest.mark.parametrize(
    "returned", [0.5, {"reward": 0.5}, {"rewards": {"kind": 0.5}}, {"rewards": {"reward": 0.5}}]
)
def test_one_number_is_a_reward(returned: object) -> None:
    assert reward_in(returned, "kind") == 0.5


@pytest.mark.parametrize(
    "returned",
    [
        None,
        math.nan,
        math.inf,
        "0.5",
        "I would say that this is a good answer.",
        {"last_line": "a good answer"},
        {"reward": math.nan},
        {"reward": 1.0, "rewards": {"kind": 0.5}},
        {"rewards": {"kind": 0.5, "other": 1.0}},
        {"rewards": {"other": 1.0}},
        {"turn_rewards": {"a": 1.0}},
        [0.5, 1.0],
    ],
)
def test_all_else_is_no_reward(returned: object) -> None:
    with pytest.raises(BadResult):
        reward_in(returned, "kind")


@pytest.mark.parametrize("returned", [[1.0, 0.5], (1, 0.5), {"b": 0.5, "a": 1}])
def test_a_judge_of_turns_rewards_each_of_them_and_the_session_with_their_mean(
    returned: object,
) -> None:
    assert turns_rewarded(returned, ["a", "b"]) == Rewarded(0.75, {"a": 1.0, "b": 0.5})


@pytest.mark.parametrize(
    "returned",
    [0.5, None, "ab", [1.0], [1.0, math.nan], [1.0, 0.5, 0.5], {"a": 1.0}, {"a": 1.0, "c": 0.5}],
)
def test_fewer_and_other_rewards_of_turns_are_none(returned: object) -> None:
    with pytest.raises(BadResult):
        turns_rewarded(returned, ["a", "b"])


def test_a_session_without_a_turn_has_no_reward_of_a_judge_of_turns() -> None:
    with pytest.raises(BadResult, match="without a turn"):
        turns_rewarded([], [])


class Throttled(Exception):
    """An error as clients of HTTP raise it."""

    class response:
        status_code = 429
        headers = {"retry-after": "7"}  # noqa: RUF012


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError("no"), urllib.error.URLError("no"), CommandFailed(75, ""), Throttled()],
)
def test_what_is_away_is_an_outage(error: Exception) -> None:
    assert failed_try(error).outage


@pytest.mark.parametrize(
    "error",
    [KeyError("score"), CommandFailed(1, "no"), BadResult("prose"), FileNotFoundError("judge")],
)
def test_what_a_judge_does_wrong_counts(error: Exception) -> None:
    assert not failed_try(error).outage


def test_an_answer_that_is_no_reward_is_counted_apart() -> None:
    assert failed_try(BadResult("prose")).unreadable
    assert not failed_try(KeyError("score")).unreadable


def test_a_server_says_when_to_come_again() -> None:
    assert failed_try(Throttled()).again_after_s == 7
    assert failed_try(KeyError("x")).again_after_s is None
