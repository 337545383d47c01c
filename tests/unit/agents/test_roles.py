"""Roles of an episode: a session each, a result each, and one end for all."""

from collections.abc import Mapping

import pytest

from seamlessflow.producers.agents.gateway_client.ending import (
    AgentCrashed,
    AgentReturned,
    AgentTimedOut,
    CloseCall,
    Ending,
    EndingRules,
)
from seamlessflow.producers.agents.result import BadResult
from seamlessflow.producers.agents.roles import (
    ALONE,
    by_role,
    calls_by_role,
    policies_of,
    results_of,
)
from seamlessflow.schemas.records import EpisodeRole
from tests.builders.records.tasks import task

ROLES = ("seeker", "hider")
TASK = task(
    group_id="run-0-seeker",
    sample=1,
    policy="a",
    metadata={"level": "2"},
    roles=(
        EpisodeRole(role="seeker", policy="a", group_id="run-0-seeker"),
        EpisodeRole(role="hider", policy="b", group_id="run-0-hider"),
    ),
)
RULES = EndingRules()


def closes(endings: Mapping[str, Ending], rules: EndingRules = RULES) -> dict[str, CloseCall]:
    return {role: calls.close for role, calls in calls_by_role(endings, rules).items()}


def test_each_role_has_a_session_of_its_policy_and_its_group() -> None:
    parts = by_role(TASK)
    assert {role: (part.policy, part.group_id, part.sample) for role, part in parts.items()} == {
        "seeker": ("a", "run-0-seeker", 1),
        "hider": ("b", "run-0-hider", 1),
    }
    assert parts["hider"].metadata == {"level": "2", "role": "hider"}
    assert policies_of(TASK, {}) == {"a", "b"}


def test_a_task_without_roles_is_that_of_its_only_session() -> None:
    alone = task(policy="a")
    assert by_role(alone) == {ALONE: alone}
    assert policies_of(alone, {"tool": "b"}) == {"a", "b"}


def test_each_role_gets_its_result() -> None:
    assert results_of({"seeker": 1, "hider": {"reward": -1.0}}, ROLES) == {
        "seeker": {"reward": 1.0},
        "hider": {"reward": -1.0},
    }
    assert results_of(None, ROLES) == {"seeker": {}, "hider": {}}
    assert results_of(0.5, [ALONE]) == {ALONE: {"reward": 0.5}}


@pytest.mark.parametrize("value", [1.0, {"seeker": 1.0}, {"seeker": 1, "hider": 1, "judge": 1}, {}])
def test_a_result_for_other_roles_is_refused(value: object) -> None:
    with pytest.raises(BadResult, match="a result for each of seeker, hider"):
        results_of(value, ROLES)


def test_each_session_gets_its_own_rewards() -> None:
    endings = {"seeker": AgentReturned({"reward": 1.0}), "hider": AgentReturned({"reward": -1.0})}
    calls = calls_by_role(endings, RULES)
    assert {role: call.rewards[0].value for role, call in calls.items()} == {
        "seeker": 1.0,
        "hider": -1.0,
    }
    assert {call.close.status for call in calls.values()} == {"complete"}


def test_a_role_without_its_reward_fails_all_of_them() -> None:
    endings = {"seeker": AgentReturned({"reward": 1.0}), "hider": AgentReturned({})}
    calls = calls_by_role(endings, RULES)
    assert calls["seeker"].rewards == ()
    assert {call.close.cause for call in calls.values()} == {"environment"}
    assert calls["seeker"].close.reason.startswith("role hider: the agent gave no reward")


def test_a_reward_that_is_no_number_fails_all_and_is_tried_again() -> None:
    endings = {"seeker": AgentReturned({"reward": float("nan")}), "hider": AgentReturned({})}
    ended = closes(endings, EndingRules(on_limit="zero"))
    assert {(close.cause, close.on_limit) for close in ended.values()} == {("environment", "retry")}


def test_a_crash_and_a_time_limit_end_all_alike() -> None:
    crash = AgentCrashed("broken", infrastructure=True)
    assert {close.cause for close in closes(dict.fromkeys(ROLES, crash)).values()} == {
        "infrastructure"
    }
    timed_out = calls_by_role(dict.fromkeys(ROLES, AgentTimedOut(3.0)), RULES)
    assert [calls.rewards[0].value for calls in timed_out.values()] == [0, 0]
