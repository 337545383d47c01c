"""One task with two roles against a scripted gateway: both sessions begin and end together."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentSpec, EnvironmentUnusable
from seamlessflow.producers.agents.harness.agent import CallableAgent
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient
from seamlessflow.schemas.records import EpisodeRole, Task
from tests.integration.agents.one_episode import THREADS, a_task, run
from tests.integration.agents.scripted_gateway import (
    Answering,
    ScriptedGateway,
    accepting,
    refusal,
)

Payload = Mapping[str, object]
Sessions = Mapping[str, AgentSession]
LIMIT_S = 120.0
CLIENT = SharedHttpClient(1)
SEEKER = "run-7-seeker.2.1"
HIDER = "run-7-hider.2.1"


def two_roles() -> Task:
    roles = (
        EpisodeRole(role="seeker", policy="a", group_id="run-7-seeker"),
        EpisodeRole(role="hider", policy="b", group_id="run-7-hider"),
    )
    return replace(a_task(), group_id="run-7-seeker", policy="a", roles=roles)


def ended(gateway: ScriptedGateway) -> dict[str, tuple[object, object]]:
    return {
        call.path.split("/")[2]: (call.body["status"], call.body["cause"])
        for call in gateway.calls
        if call.path.endswith("/close")
    }


async def never(task: Payload, sessions: Sessions) -> float:
    raise AssertionError("must not run")


def test_the_agent_gets_a_session_for_each_role_and_each_gets_its_reward() -> None:
    async def agent(task: Payload, sessions: Sessions) -> Mapping[str, object]:
        assert {role: session.model for role, session in sessions.items()} == {
            "seeker": "a",
            "hider": "b",
        }
        assert sessions["hider"].api_key == f"key of {HIDER}"
        assert sessions["hider"].metadata["role"] == "hider"
        return {"seeker": 1.0, "hider": {"reward": -1.0}}

    gateway = run(CallableAgent(agent, THREADS), two_roles())
    opened = {
        call.body["session_id"]: call.body for call in gateway.calls if call.path == "/sessions"
    }
    assert opened.keys() == {SEEKER, HIDER}
    assert [opened[HIDER][name] for name in ("group_id", "policy", "sample", "attempt")] == [
        "run-7-hider",
        "b",
        2,
        1,
    ]
    rewards = {
        call.path.split("/")[2]: call.body["value"]
        for call in gateway.calls
        if call.path.endswith("/reward")
    }
    assert rewards == {SEEKER: 1.0, HIDER: -1.0}
    assert ended(gateway) == dict.fromkeys((SEEKER, HIDER), ("complete", "policy"))


def test_a_plain_function_gets_them_too() -> None:
    def agent(task: Payload, sessions: Sessions) -> Mapping[str, float]:
        return dict.fromkeys(sessions, 0.5)

    gateway = run(CallableAgent(agent, THREADS), two_roles())
    assert set(ended(gateway).values()) == {("complete", "policy")}


async def raising(task: Payload, sessions: Sessions) -> float:
    raise ValueError("the board fell over")


async def for_one_role(task: Payload, sessions: Sessions) -> Mapping[str, float]:
    return {"seeker": 1.0}


async def no_number(task: Payload, sessions: Sessions) -> Mapping[str, float]:
    return {"seeker": 1.0, "hider": float("nan")}


@pytest.mark.parametrize("agent", [raising, for_one_role, no_number])
def test_an_episode_that_fails_fails_both_and_rewards_none(agent: object) -> None:
    gateway = run(CallableAgent(agent, THREADS), two_roles())  # type: ignore[arg-type]
    assert ended(gateway) == dict.fromkeys((SEEKER, HIDER), ("aborted", "environment"))
    assert not [path for path in gateway.paths() if path.endswith("/reward")]


def test_both_have_the_time_limits_reward() -> None:
    async def hanging(task: Payload, sessions: Sessions) -> float:
        await asyncio.Event().wait()
        raise AssertionError

    gateway = run(CallableAgent(hanging, THREADS), two_roles(), time_limit_s=0.1)
    assert ended(gateway) == dict.fromkeys((SEEKER, HIDER), ("timeout", "policy"))


def test_a_reward_that_is_refused_fails_both() -> None:
    def refusing(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(404, "unknown_turn") if "turn" in body else accepting(path, body)

    async def agent(task: Payload, sessions: Sessions) -> Mapping[str, object]:
        return {"seeker": 1.0, "hider": {"reward": 1.0, "turn_rewards": {"response": 1.0}}}

    gateway = run(CallableAgent(agent, THREADS), two_roles(), refusing)
    assert set(ended(gateway).values()) == {("aborted", "environment")}


def refusing_hider(status: int, code: str) -> Answering:
    """Return a gateway that does not open the session of one role as it is asked."""

    def answer(path: str, body: Payload) -> tuple[int, Payload]:
        asked = body.get("session_id") == HIDER and body["task_id"]
        return refusal(status, code) if asked else accepting(path, body)

    return answer


def test_a_refused_session_takes_the_other_with_it_for_good() -> None:
    gateway = run(CallableAgent(never, THREADS), two_roles(), refusing_hider(422, "invalid_value"))
    assert ended(gateway) == dict.fromkeys((SEEKER, HIDER), ("aborted", "setting"))


def test_an_episode_of_which_another_process_has_a_session_is_not_run_twice() -> None:
    gateway = run(CallableAgent(never, THREADS), two_roles(), refusing_hider(409, "session_exists"))
    assert ended(gateway) == {SEEKER: ("aborted", "infrastructure")}


DUEL = """
class Environment:
    roles = ("left", "right")

    async def run(self, task, sessions):
        names = {role: session.session_id for role, session in sessions.items()}
        assert names == {"left": "s0", "right": "s1"}, names
        return {"left": 1.0, "right": {"reward": -1}}
"""


@pytest.fixture
def duel(tmp_path: Path) -> EnvironmentSpec:
    (tmp_path / "duel.py").write_text(DUEL)
    log_file = tmp_path / "environment.log"
    python = Path(sys.executable)
    return EnvironmentSpec("duel", python, tmp_path / "duel.py", {}, os.environ, log_file)


async def played(spec: EnvironmentSpec) -> object:
    agent = EnvironmentAgent(spec, 1, 1, LIMIT_S)
    await agent.begin()
    sessions = {
        role: AgentSession(f"s{number}", "http://127.0.0.1:9/v1", "key", "p", 0, {}, CLIENT)
        for number, role in enumerate(spec.roles)
    }
    try:
        return await agent.run(b"{}", sessions)
    finally:
        await agent.close()


def test_an_adapter_of_several_roles_gets_a_session_for_each(duel: EnvironmentSpec) -> None:
    both = replace(duel, roles=("left", "right"))
    assert asyncio.run(played(both)) == {"left": 1.0, "right": {"reward": -1}}


@pytest.mark.parametrize("roles", [(), ("left",), ("left", "middle", "right")])
def test_roles_that_an_adapter_does_not_have_are_refused(
    duel: EnvironmentSpec, roles: tuple[str, ...]
) -> None:
    named = ", ".join(roles) or "none"
    with pytest.raises(EnvironmentUnusable, match=rf"it has left, right; agents\.roles: {named}"):
        asyncio.run(played(replace(duel, roles=roles)))
