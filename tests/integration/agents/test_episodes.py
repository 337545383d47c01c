"""One task against a scripted gateway: its session is closed, whatever its agent does."""

import asyncio
import fcntl
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.settings import TelemetrySettings
from infra.telemetry.metrics import Metrics
from infra.telemetry.tracing import telemetry
from producers.agents.episode import Episodes
from producers.agents.gateway_client.client import GatewayClient, GatewayRefused
from producers.agents.harness.agent import Agent, CallableAgent, CommandAgent
from producers.agents.harness.command import Command
from producers.agents.harness.loading import Callback
from producers.agents.harness.session import AgentSession
from producers.agents.settings import AgentsSection
from schemas.records import Task
from tests.integration.agents.scripted_gateway import (
    Answering,
    ScriptedGateway,
    accepting,
    on_uvloop,
    refusal,
)

Payload = Mapping[str, object]
SESSION = "run-7.2.1"
THREADS = ThreadPoolExecutor(4)
NO_TRACES = telemetry(TelemetrySettings(), "agents", "test")


def a_task(limit_s: float = 30) -> Task:
    now = round(time.time() * 1000)
    return Task(
        policy="default",
        task_id="t1",
        group_id="run-7",
        sample=2,
        attempt=1,
        group_size=4,
        metadata={"level": "3"},
        payload=b'{"prompt":"key 7"}',
        issued_at_ms=now,
        deadline_ms=now + round(limit_s * 1000),
    )


def run(
    agent: Agent,
    task: Task | None = None,
    answering: Answering = accepting,
    judge: Callback | None = None,
    **settings: object,
) -> ScriptedGateway:
    """Run the task; return the gateway with its calls."""
    section = AgentsSection.model_validate({"name": "tester", **settings})

    async def main() -> ScriptedGateway:
        async with ScriptedGateway(answering).serving() as gateway:
            client = GatewayClient(gateway.url, "admin", section.call_limit_s)
            episodes = Episodes(section, agent, judge, client, THREADS, NO_TRACES, Metrics())
            try:
                await episodes.run(task or a_task())
            finally:
                await episodes.close()
        return gateway

    return on_uvloop(main())


def python(program: str, environment: Mapping[str, str] | None = None) -> CommandAgent:
    return CommandAgent(Command([sys.executable, "-c", program], environment or {}))


def wait_for_lock(path: Path, limit_s: float) -> None:
    """Return when no process holds the lock any more; fails after the limit."""
    deadline = time.monotonic() + limit_s
    with path.open() as held:
        while time.monotonic() < deadline:
            try:
                return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
    raise AssertionError(f"{path} is still held")


def closed(gateway: ScriptedGateway) -> tuple[object, object]:
    last = gateway.calls[-1]
    assert last.path == f"/sessions/{SESSION}/close"
    return last.body["status"], last.body["cause"]


def test_a_task_becomes_a_session_with_its_identity_a_reward_and_a_close() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        assert task == {"prompt": "key 7"}
        assert session.api_key == f"key of {SESSION}"
        return 0.75

    gateway = run(CallableAgent(agent, THREADS))
    opened, rewarded, ended = gateway.calls
    assert opened.authorization == "bearer admin"
    assert opened.body["session_id"] == SESSION
    assert opened.body["group_id"] == "run-7"
    assert opened.body["metadata"] == {"level": "3"}
    assert rewarded.path == f"/sessions/{SESSION}/reward"
    assert rewarded.body == {"name": "reward", "value": 0.75, "final": True}
    assert ended.body["status"] == "complete"


def test_a_sync_agent_works_as_well() -> None:
    def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    assert closed(run(CallableAgent(agent, THREADS))) == ("complete", "policy")


def test_a_judge_of_its_own_sees_task_and_result() -> None:
    async def agent(task: Payload, session: AgentSession) -> Payload:
        return {"answer": "code 3"}

    def judge(task: Payload, result: Payload) -> float:
        return float(task["prompt"] == "key 7" and result["answer"] == "code 3")

    gateway = run(CallableAgent(agent, THREADS), judge=judge)
    assert gateway.calls[1].body["value"] == 1.0


def test_a_judge_that_fails_aborts_the_session() -> None:
    async def agent(task: Payload, session: AgentSession) -> None:
        return None

    def judge(task: Payload, result: Payload) -> float:
        raise KeyError("answer")

    assert closed(run(CallableAgent(agent, THREADS), judge=judge)) == ("aborted", "environment")


def test_an_agent_that_raises_closes_its_session_as_aborted() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        raise RuntimeError("lost the thread")

    gateway = run(CallableAgent(agent, THREADS))
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.calls[-1].body["reason"] == "RuntimeError: lost the thread"


def test_an_agent_that_calls_exit_does_not_end_the_process() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        sys.exit(3)

    assert closed(run(CallableAgent(agent, THREADS))) == ("aborted", "environment")


def test_an_agent_is_stopped_at_its_tasks_deadline() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        await asyncio.Event().wait()
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), a_task(limit_s=0.2))
    assert closed(gateway) == ("timeout", "environment")


def test_an_agent_is_stopped_at_the_time_limit_and_may_be_punished() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        await asyncio.Event().wait()
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), time_limit_s=0.1, timeout_reward=-1.0)
    assert gateway.calls[1].body["value"] == -1.0
    assert closed(gateway) == ("timeout", "policy")


def test_a_task_whose_deadline_has_passed_opens_nothing() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    assert run(CallableAgent(agent, THREADS), a_task(limit_s=-1)).calls == []


def test_a_session_that_exists_is_not_run_again() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        raise AssertionError("must not run")

    gateway = run(
        CallableAgent(agent, THREADS), answering=lambda *_: refusal(409, "session_exists")
    )
    assert gateway.paths() == ["/sessions"]


def test_a_session_whose_opening_got_no_answer_is_closed_when_it_turns_out_to_exist() -> None:
    answers = iter([refusal(504, "expired"), refusal(409, "session_exists"), (200, {})])

    async def agent(task: Payload, session: AgentSession) -> float:
        raise AssertionError("must not run")

    gateway = run(CallableAgent(agent, THREADS), answering=lambda *_: next(answers))
    assert closed(gateway) == ("aborted", "infrastructure")


def test_a_busy_gateway_is_asked_again() -> None:
    answers = iter([refusal(503, "kafka"), refusal(429, "busy")])

    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return next(answers, None) or accepting(path, body)

    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), answering=answering)
    assert gateway.paths()[:3] == ["/sessions"] * 3
    assert closed(gateway) == ("complete", "policy")


def test_a_gateway_that_stays_away_costs_the_task_only() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        raise AssertionError("must not run")

    gateway = run(
        CallableAgent(agent, THREADS), answering=lambda *_: refusal(503, "kafka"), call_limit_s=0.5
    )
    assert set(gateway.paths()) == {"/sessions"}


def test_a_wrong_admin_key_ends_the_process() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        raise AssertionError("must not run")

    with pytest.raises(GatewayRefused):
        run(CallableAgent(agent, THREADS), answering=lambda *_: refusal(401, "unauthorized"))


def test_a_session_that_was_closed_meanwhile_stays_closed() -> None:
    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(409, "session_closed") if path != "/sessions" else accepting(path, body)

    async def agent(task: Payload, session: AgentSession) -> None:
        raise RuntimeError("409 session_closed")

    assert closed(run(CallableAgent(agent, THREADS), answering=answering))[0] == "aborted"


def test_a_command_gets_its_task_and_its_session_and_prints_its_reward() -> None:
    program = """
import json, os, sys
task = json.load(sys.stdin)
assert task == json.loads(os.environ["SEAMLESSFLOW_TASK"]) == {"prompt": "key 7"}
assert os.environ["OPENAI_API_KEY"] == "key of " + os.environ["SEAMLESSFLOW_SESSION"]
assert os.environ["OPENAI_BASE_URL"].endswith("/v1") and os.environ["OPENAI_MODEL"] == "default"
assert os.environ["ANTHROPIC_BASE_URL"] + "/v1" == os.environ["OPENAI_BASE_URL"]
assert os.environ["ANTHROPIC_API_KEY"] == os.environ["OPENAI_API_KEY"]
print("working")
print(json.dumps({"reward": 0.25}))
"""
    gateway = run(python(program))
    assert gateway.calls[1].body["value"] == 0.25
    assert closed(gateway) == ("complete", "policy")


def test_a_command_does_not_see_the_settings_of_its_runner() -> None:
    program = "import os; print(int('SEAMLESSFLOW_AGENTS__ADMIN_KEY' not in os.environ))"
    gateway = run(python(program, {"SEAMLESSFLOW_AGENTS__ADMIN_KEY": "hidden"}))
    assert gateway.calls[1].body["value"] == 1.0


def test_a_command_that_fails_closes_its_session_with_the_end_of_its_complaint() -> None:
    gateway = run(python("import sys; print('reward 1'); sys.exit('no such file')"))
    assert closed(gateway) == ("aborted", "environment")
    assert str(gateway.calls[-1].body["reason"]).endswith("no such file")


def test_a_command_may_blame_the_infrastructure() -> None:
    assert closed(run(python("raise SystemExit(75)"))) == ("aborted", "infrastructure")


def test_a_command_without_a_reward_is_unrewarded() -> None:
    assert closed(run(python("print('done')")))[0] == "unrewarded"


def test_a_command_and_all_it_started_are_ended_at_the_time_limit(tmp_path: Path) -> None:
    program = f"""
import fcntl, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open({str(tmp_path / "held")!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
waiting = "import signal; signal.pause()"
subprocess.run([sys.executable, "-c", waiting], pass_fds=[held.fileno()])
signal.pause()
"""
    gateway = run(python(program), time_limit_s=1.0)
    assert closed(gateway) == ("timeout", "environment")
    wait_for_lock(tmp_path / "held", limit_s=5)


def test_a_command_that_leaves_a_child_behind_does_not_wait_for_it() -> None:
    program = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print('{"reward": 1}')
"""
    assert closed(run(python(program), time_limit_s=20)) == ("complete", "policy")
