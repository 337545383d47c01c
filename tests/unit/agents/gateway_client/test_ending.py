from typing import Any

import pytest

from producers.agents.gateway_client.ending import (
    REASON_CHARACTERS,
    AgentCrashed,
    AgentPruned,
    AgentReturned,
    AgentStopped,
    AgentTimedOut,
    CloseCall,
    ClosingCalls,
    Ending,
    EndingRules,
    RewardCall,
    closing_calls,
    result_of,
)


def ended(ending: Ending, **rules: Any) -> ClosingCalls:
    return closing_calls(ending, EndingRules(**rules))


def test_a_number_is_the_terminal_reward_and_completes_the_session() -> None:
    told = ended(AgentReturned(result_of(0.5)))
    assert told.rewards == (RewardCall("reward", 0.5, None, final=True),)
    assert told.close == CloseCall("complete", "", "policy")


def test_rewards_of_turns_and_other_judgements_come_before_the_terminal_one() -> None:
    result = {"reward": 1, "rewards": {"format": 0.2}, "turn_rewards": {"chatcmpl-1": -1.0}}
    assert ended(AgentReturned(result)).rewards == (
        RewardCall("reward", -1.0, "chatcmpl-1", final=False),
        RewardCall("format", 0.2, None, final=False),
        RewardCall("reward", 1.0, None, final=True),
    )


def test_an_agent_may_say_that_it_was_truncated() -> None:
    told = ended(AgentReturned({"reward": 0, "status": "truncated"}))
    assert told.close == CloseCall("truncated", "", "policy")


def test_without_a_reward_the_session_is_unrewarded() -> None:
    told = ended(AgentReturned(result_of(None)))
    assert told.rewards == ()
    assert told.close.status == "unrewarded"


def test_without_a_reward_the_session_waits_for_one_where_that_is_asked_for() -> None:
    told = ended(AgentReturned({"rewards": {"style": 1.0}}), await_reward_s=500)
    assert told.rewards == (RewardCall("style", 1.0, None, final=False),)
    assert told.close == CloseCall("complete", "", "policy", await_reward_s=500)


def test_a_crash_is_the_environments_doing() -> None:
    told = ended(AgentCrashed("ValueError: no"))
    assert told == ClosingCalls((), CloseCall("aborted", "ValueError: no", "environment"))


def test_a_failing_endpoint_is_the_infrastructures_doing() -> None:
    assert ended(AgentCrashed("503", infrastructure=True)).close.cause == "infrastructure"


def test_a_timeout_is_the_policys_doing_and_worth_nothing() -> None:
    told = ended(AgentTimedOut(2))
    assert told.rewards == (RewardCall("reward", 0, None, final=True),)
    assert told.close == CloseCall("timeout", "the agent was stopped after 2.0 s", "policy")
    (punished,) = ended(AgentTimedOut(2), timeout_reward=-1.0).rewards
    assert punished.value == -1.0


@pytest.mark.parametrize(("rule", "cause"), [("retry", "environment"), ("drop", "setting")])
def test_a_timeout_may_be_tried_again_or_left_out(rule: str, cause: str) -> None:
    told = ended(AgentTimedOut(2), on_timeout=rule)
    assert told.rewards == ()
    assert (told.close.status, told.close.cause) == ("timeout", cause)


def test_an_agent_that_began_too_late_to_have_its_time_is_tried_again() -> None:
    told = ended(AgentTimedOut(2, late=True))
    assert (told.rewards, told.close.cause) == ((), "infrastructure")


@pytest.mark.parametrize("ending", [AgentCrashed("400"), AgentReturned({})])
def test_what_a_limit_of_the_policy_is_worth_goes_with_the_close(ending: Ending) -> None:
    assert ended(ending).close.on_limit == "zero"
    assert ended(ending, on_limit="drop").close.on_limit == "drop"


def test_an_agent_that_was_stopped_with_its_process_is_tried_again() -> None:
    assert (ended(AgentStopped()).close.status, ended(AgentStopped()).close.cause) == (
        "aborted",
        "infrastructure",
    )


def test_an_agent_whose_group_is_complete_without_it_is_pruned_and_not_tried_again() -> None:
    told = ended(AgentPruned())
    assert (told.rewards, told.close.status, told.close.cause) == ((), "pruned", "setting")


def test_a_result_that_cannot_be_read_counts_as_a_crash() -> None:
    bad: list[dict[str, object]] = [
        {"reward": "high"},
        {"reward": float("nan")},
        {"reward": 1, "status": "great"},
        {"turn_rewards": [1.0]},
    ]
    for result in bad:
        told = ended(AgentReturned(result))
        assert (told.close.status, told.close.cause) == ("aborted", "environment")
        assert told.rewards == ()


def test_a_long_reason_keeps_its_end() -> None:
    reason = ended(AgentCrashed("x" * 3000 + "the point")).close.reason
    assert reason.endswith("the point")
    assert len(reason) == REASON_CHARACTERS
