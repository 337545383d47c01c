from typing import Any

import pytest

from seamlessflow.producers.agents.gateway_client.ending import (
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
    closing_calls,
)
from seamlessflow.producers.agents.result import BadResult, RewardCall, judged, result_of


def ended(ending: Ending, **rules: Any) -> ClosingCalls:
    return closing_calls(ending, EndingRules(**rules))


def test_a_number_is_the_terminal_reward_and_completes_the_session() -> None:
    calls = ended(AgentReturned(result_of(0.5)))
    assert calls.rewards == (RewardCall("reward", 0.5, None, final=True),)
    assert calls.close == CloseCall("complete", "", "policy")


def test_rewards_of_turns_and_other_judgements_come_before_the_terminal_one() -> None:
    result = {"reward": 1, "rewards": {"format": 0.2}, "turn_rewards": {"chatcmpl-1": -1.0}}
    assert ended(AgentReturned(result)).rewards == (
        RewardCall("reward", -1.0, "chatcmpl-1", final=False),
        RewardCall("format", 0.2, None, final=False),
        RewardCall("reward", 1.0, None, final=True),
    )


def test_an_agent_may_say_that_it_was_truncated() -> None:
    calls = ended(AgentReturned({"reward": 0, "status": "truncated"}))
    assert calls.close == CloseCall("truncated", "", "policy")


def test_without_a_reward_the_session_is_unrewarded() -> None:
    calls = ended(AgentReturned(result_of(None)))
    assert calls.rewards == ()
    assert calls.close.status == "unrewarded"


def test_without_a_reward_the_session_waits_for_one_where_that_is_asked_for() -> None:
    calls = ended(AgentReturned({"rewards": {"style": 1.0}}), await_reward_s=500)
    assert calls.rewards == (RewardCall("style", 1.0, None, final=False),)
    assert calls.close == CloseCall("complete", "", "policy", await_reward_s=500)


def test_where_judges_give_all_rewards_an_agent_needs_to_give_none() -> None:
    assert ended(AgentReturned({}), rewards=()) == ClosingCalls(
        (), CloseCall("complete", "", "policy")
    )


BOTH = ("test", "format")


def test_the_last_of_the_rewards_that_a_session_needs_is_final() -> None:
    calls = ended(AgentReturned({"rewards": {"format": 0, "other": 1, "test": 1}}), rewards=BOTH)
    assert [(reward.name, reward.final) for reward in calls.rewards] == [
        ("format", False),
        ("other", False),
        ("test", True),
    ]
    assert calls.close == CloseCall("complete", "", "policy")


def test_a_session_without_one_of_them_is_unrewarded_and_both_names_are_told() -> None:
    calls = ended(AgentReturned({"rewards": {"tests": 1, "format": 1}}), rewards=BOTH)
    assert [reward.final for reward in calls.rewards] == [False, False]
    assert (calls.close.status, calls.close.cause) == ("unrewarded", "environment")
    assert calls.close.reason == "the agent gave no reward 'test', but 'tests', 'format'"
    plain = ended(AgentReturned(result_of(1.0)), rewards=BOTH)
    assert plain.close.reason == "the agent gave no reward 'test', 'format', but 'reward'"


def test_a_session_waits_for_those_that_come_from_elsewhere() -> None:
    calls = ended(AgentReturned({"rewards": {"format": 1}}), rewards=BOTH, await_reward_s=60)
    assert [reward.final for reward in calls.rewards] == [False]
    assert calls.close == CloseCall("complete", "", "policy", 60, await_rewards=("test",))


def test_a_turn_may_have_several_rewards_and_each_its_source() -> None:
    of_turn = {"format": 0.5, "test": {"value": 1, "source": "human"}}
    result = {"reward": {"value": 2, "source": "model"}, "turn_rewards": {"chatcmpl-1": of_turn}}
    assert ended(AgentReturned(result)).rewards == (
        RewardCall("format", 0.5, "chatcmpl-1", final=False),
        RewardCall("test", 1.0, "chatcmpl-1", final=False, source="human"),
        RewardCall("reward", 2.0, None, final=True, source="model"),
    )


@pytest.mark.parametrize(
    "verdict", [1, {"reward": 1}, {"rewards": {"reward": {"value": 1, "source": "verifier"}}}]
)
def test_the_rewards_of_a_judge_take_the_place_of_the_agents(verdict: object) -> None:
    result = {"reward": 0.0, "rewards": {"format": 0.5}, "turn_rewards": {"r": 1}, "text": "x"}
    both = judged(result, verdict)
    assert both["text"] == "x"
    assert ended(AgentReturned(both)).rewards == (
        RewardCall("reward", 1.0, "r", final=False),
        RewardCall("format", 0.5, None, final=False),
        RewardCall("reward", 1.0, None, final=True, source="verifier"),
    )


def test_a_judge_may_judge_turns_and_give_several_rewards() -> None:
    verdict = {"rewards": {"test": 1, "format": 0}, "turn_rewards": {"r": {"test": 0.25}}}
    both = judged({"turn_rewards": {"r": {"own": 1}}}, verdict)
    calls = ended(AgentReturned(both), rewards=BOTH)
    assert [(reward.name, reward.response_id, reward.source) for reward in calls.rewards] == [
        ("own", "r", "agent"),
        ("test", "r", "verifier"),
        ("test", None, "verifier"),
        ("format", None, "verifier"),
    ]


@pytest.mark.parametrize("verdict", [None, {}, {"score": 1}, "1", {"rewards": {"a": float("nan")}}])
def test_a_judge_that_gives_no_reward_is_an_error(verdict: object) -> None:
    with pytest.raises(BadResult):
        judged({"reward": 1.0}, verdict)


def test_a_failing_judge_leaves_its_session_unrewarded() -> None:
    calls = ended(AgentCrashed("the judge gave no reward", unjudged=True), on_limit="zero")
    assert calls.rewards == ()
    assert (calls.close.status, calls.close.cause) == ("unrewarded", "environment")
    assert calls.close.on_limit == "retry", "also where the last answer was cut"


def test_a_timeout_has_no_reward_where_that_of_this_name_does_not_count() -> None:
    calls = ended(AgentTimedOut(2), rewards=BOTH)
    assert (calls.rewards, calls.close.status, calls.close.cause) == ((), "timeout", "policy")


def test_a_crash_is_the_environments_doing() -> None:
    calls = ended(AgentCrashed("ValueError: no"))
    assert calls == ClosingCalls((), CloseCall("aborted", "ValueError: no", "environment"))


def test_a_failing_endpoint_is_the_infrastructures_doing() -> None:
    assert ended(AgentCrashed("503", infrastructure=True)).close.cause == "infrastructure"


def test_a_timeout_is_the_policys_doing_and_worth_nothing() -> None:
    calls = ended(AgentTimedOut(2))
    assert calls.rewards == (RewardCall("reward", 0, None, final=True),)
    assert calls.close == CloseCall("timeout", "the agent was stopped after 2.0 s", "policy")
    (punished,) = ended(AgentTimedOut(2), timeout_reward=-1.0).rewards
    assert punished.value == -1.0


@pytest.mark.parametrize(("rule", "cause"), [("retry", "environment"), ("drop", "setting")])
def test_a_timeout_may_be_tried_again_or_left_out(rule: str, cause: str) -> None:
    calls = ended(AgentTimedOut(2), on_timeout=rule)
    assert calls.rewards == ()
    assert (calls.close.status, calls.close.cause) == ("timeout", cause)


def test_an_agent_that_began_too_late_to_have_its_time_is_tried_again() -> None:
    calls = ended(AgentTimedOut(2, late=True))
    assert (calls.rewards, calls.close.cause) == ((), "infrastructure")


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
    calls = ended(AgentPruned())
    assert (calls.rewards, calls.close.status, calls.close.cause) == ((), "pruned", "setting")


def test_a_result_that_cannot_be_read_counts_as_a_crash() -> None:
    bad: list[dict[str, object]] = [
        {"reward": "high"},
        {"reward": float("nan")},
        {"reward": 1, "status": "great"},
        {"turn_rewards": [1.0]},
    ]
    for result in bad:
        calls = ended(AgentReturned(result))
        assert (calls.close.status, calls.close.cause) == ("aborted", "environment")
        assert calls.rewards == ()


@pytest.mark.parametrize("rule", ["zero", "drop", "retry"])
@pytest.mark.parametrize("value", ["1.0", float("nan"), 10**400, {"status": "great"}])
def test_a_bad_result_is_the_agents_error_also_where_its_last_answer_was_cut(
    value: object, rule: str
) -> None:
    """Else a mistake of its author would be trained as a reward of 0."""
    result = value if isinstance(value, dict) else {"reward": value}
    assert ended(AgentReturned(result), on_limit=rule).close.on_limit == "retry"


def test_a_bad_verdict_is_the_judges_error() -> None:
    bad = AgentCrashed("a reward is a finite number", unjudged=True, bad_result=True)
    assert ended(bad, on_limit="zero").close == CloseCall(
        "unrewarded", "a reward is a finite number", "environment", on_limit="retry"
    )


def test_a_long_reason_keeps_its_end() -> None:
    reason = ended(AgentCrashed("x" * 3000 + "the point")).close.reason
    assert reason.endswith("the point")
    assert len(reason) == REASON_CHARACTERS
