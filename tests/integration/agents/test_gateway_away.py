"""One task whose gateway is away for a while: its session is rewarded and closed all the same."""

from collections.abc import Mapping
from itertools import groupby

import pytest

from seamlessflow.producers.agents.harness.agent import CallableAgent
from seamlessflow.producers.agents.harness.session import AgentSession
from tests.integration.agents.one_episode import THREADS, a_task, closed, run
from tests.integration.agents.scripted_gateway import (
    SILENCE,
    Answering,
    ScriptedGateway,
    accepting,
    refusal,
)

Payload = Mapping[str, object]
LIMIT_S = 0.2
"""Limit of a try. Four failures in a row take 8 times as long, by the pauses between them."""


def failing(path: str, *failures: tuple[int, Payload]) -> Answering:
    """Return a gateway that first fails calls whose path ends like this, then accepts."""
    answers = iter(failures)

    def answering(called: str, body: Payload) -> tuple[int, Payload]:
        failure = next(answers, None) if called.endswith(path) else None
        return failure or accepting(called, body)

    return answering


async def right(task: Payload, session: AgentSession) -> float:
    return 1.0


def paths_and_tries(gateway: ScriptedGateway) -> list[tuple[str, int]]:
    """Return the path of each call and how often it was made."""
    calls = groupby(gateway.calls, lambda call: (call.path, call.key))
    return [(path.rpartition("/")[2], len(list(tries))) for (path, _), tries in calls]


@pytest.mark.parametrize("path", ["/reward", "/close"])
def test_reward_and_close_are_repeated_far_beyond_the_limit_of_a_try(path: str) -> None:
    """Holds invariant I8."""
    away = refusal(503, "kafka"), refusal(504, "expired"), refusal(502, "proxy"), SILENCE
    gateway = run(
        CallableAgent(right, THREADS), answering=failing(path, *away), call_limit_s=LIMIT_S
    )
    tries = {"sessions": 1, "reward": 1, "close": 1, path.strip("/"): 5}
    assert paths_and_tries(gateway) == list(tries.items())
    assert closed(gateway) == ("complete", "policy")


def test_a_session_that_takes_no_more_is_not_asked_again() -> None:
    refused = failing("/close", refusal(503, "kafka"), refusal(404, "unknown_session"))
    gateway = run(CallableAgent(right, THREADS), answering=refused)
    assert paths_and_tries(gateway) == [("sessions", 1), ("reward", 1), ("close", 2)]


def test_a_session_whose_reward_is_refused_is_closed_all_the_same() -> None:
    refused = failing("/reward", refusal(404, "unknown_turn"))
    gateway = run(CallableAgent(right, THREADS), answering=refused)
    assert closed(gateway) == ("aborted", "environment")
    assert "unknown_turn" in str(gateway.calls[-1].body["reason"])


def test_an_opening_waits_and_its_agent_has_the_time_that_is_left() -> None:
    left_ms: list[float] = []
    task = a_task(limit_s=30)

    async def agent(_: Payload, session: AgentSession) -> float:
        left_ms.append(task.deadline_ms - session.deadline_ms)
        return 1.0

    away = failing("/sessions", *[refusal(503, "unknown_policy")] * 3)
    gateway = run(CallableAgent(agent, THREADS), task, away, call_limit_s=LIMIT_S)
    assert paths_and_tries(gateway) == [("sessions", 4), ("reward", 1), ("close", 1)]
    assert abs(left_ms[0]) < 300  # it waited for longer


def test_an_agent_whose_calls_fail_meanwhile_is_tried_again() -> None:
    class ServiceUnavailable(Exception):
        """Has a status, as the errors of OpenAI's client have."""

        status_code = 503

    async def agent(task: Payload, session: AgentSession) -> float:
        raise ServiceUnavailable

    away = failing("/close", *[refusal(503, "kafka")] * 3)
    assert closed(run(CallableAgent(agent, THREADS), answering=away)) == (
        "aborted",
        "infrastructure",
    )
