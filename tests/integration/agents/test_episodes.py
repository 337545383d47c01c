"""One task against a scripted gateway: its session is closed, whatever its agent does."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import orjson
import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.producers.agents.ended_groups import EndedGroups
from seamlessflow.producers.agents.gateway_client.client import GatewayRefused
from seamlessflow.producers.agents.harness.agent import CallableAgent
from seamlessflow.producers.agents.harness.session import AgentSession
from seamlessflow.producers.agents.play import WatchedRun
from seamlessflow.producers.agents.serving import ServingTime
from seamlessflow.schemas.json_form import to_json
from tests.builders.records.fleet import heartbeat
from tests.builders.records.forks import forked
from tests.integration.agents.one_episode import SESSION, THREADS, a_task, closed, run
from tests.integration.agents.scripted_gateway import (
    SILENCE,
    accepting,
    refusal,
)

Payload = Mapping[str, object]
LIMIT_S = 0.1


async def never(task: Payload, session: AgentSession) -> float:
    raise AssertionError("must not run")


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
    assert rewarded.body == {"name": "reward", "value": 0.75, "final": True, "source": "agent"}
    assert ended.body["status"] == "complete"


def test_a_fork_is_opened_with_its_beginning_and_its_agent_gets_the_messages_so_far() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        asked, call, result = session.messages
        assert asked == {"role": "user", "content": "sum up"}
        # Ids of calls are those of the new session.
        assert call["tool_calls"][0]["id"] == result["tool_call_id"] != "call_a_0"
        return 0.5

    gateway = run(CallableAgent(agent, THREADS), replace(a_task(), fork=forked()))
    assert gateway.calls[0].body["fork"] == orjson.loads(to_json(forked()))
    assert gateway.calls[1].body["value"] == 0.5


def test_an_agent_gets_no_messages_if_recorded_answers_are_played_back() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        return float(len(session.messages))

    gateway = run(CallableAgent(agent, THREADS), replace(a_task(), fork=forked(mode="playback")))
    assert gateway.calls[1].body["value"] == 0.0


def test_a_sample_whose_fork_is_refused_ends_at_once_with_the_reason() -> None:
    def refusing(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(409, "fork_refused") if "fork" in body else accepting(path, body)

    def agent(task: Payload, session: AgentSession) -> float:
        raise AssertionError

    gateway = run(CallableAgent(agent, THREADS), replace(a_task(), fork=forked()), refusing)
    assert gateway.paths() == ["/sessions", "/sessions", f"/sessions/{SESSION}/close"]
    assert closed(gateway) == ("aborted", "setting")
    assert gateway.calls[-1].body["reason"] == "fork_refused: Conflict"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_sample_whose_session_is_refused_ends_at_once_with_the_reason(status: int) -> None:
    """Refuse an opening for what a place in a group does not need, whichever member that is."""

    def refusing(path: str, body: Payload) -> tuple[int, Payload]:
        refused = path == "/sessions" and (body["task_id"] or body["metadata"])
        return refusal(status, "invalid_value") if refused else accepting(path, body)

    gateway = run(CallableAgent(never, THREADS), answering=refusing)
    assert gateway.paths() == ["/sessions", "/sessions", f"/sessions/{SESSION}/close"]
    assert closed(gateway) == ("aborted", "setting")
    assert str(gateway.calls[-1].body["reason"]).startswith("invalid_value: ")
    place = ("session_id", "policy", "purpose", "split", "group_id", "sample", "attempt")
    for name in (*place, "group_size", "min_group_size"):
        assert gateway.calls[1].body[name] == gateway.calls[0].body[name]


def test_a_sample_that_the_gateway_refuses_in_any_form_does_not_end_the_process() -> None:
    gateway = run(CallableAgent(never, THREADS), answering=lambda *_: refusal(400, "invalid_value"))
    assert gateway.paths() == ["/sessions", "/sessions"]


def test_an_agent_is_stopped_when_its_group_is_complete_without_it() -> None:
    groups = EndedGroups()

    async def hanging(task: Payload, session: AgentSession) -> float:
        groups.end(["run-7"])
        await asyncio.Event().wait()
        raise AssertionError

    gateway = run(CallableAgent(hanging, THREADS), watched=WatchedRun(ended=groups))
    assert closed(gateway) == ("pruned", "setting")
    again = run(CallableAgent(hanging, THREADS), watched=WatchedRun(ended=groups))
    assert again.paths() == [], "and none of the group is started any more"


def test_a_reward_of_a_session_that_a_rule_ended_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    def pruned(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(409, "session_pruned") if path.endswith("/reward") else accepting(path, body)

    gateway = run(CallableAgent(agent, THREADS), answering=pruned)
    assert closed(gateway) == ("complete", "policy")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


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
    rewarded = gateway.calls[1].body
    assert (rewarded["value"], rewarded["source"], rewarded["final"]) == (1.0, "verifier", True)


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30])
def test_agent_and_judge_see_every_digit_of_a_wide_integer(number: int) -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        return float(task["answer"] == number)

    def judge(task: Payload, result: Payload) -> dict[str, object]:
        return {"rewards": {"judged": float(task["answer"] == number)}}

    asked = replace(a_task(), payload=b'{"answer":%d}' % number)
    calls = run(CallableAgent(agent, THREADS), asked, judge=judge).calls
    values = {call.body["name"]: call.body["value"] for call in calls if "value" in call.body}
    assert values == {"reward": 1.0, "judged": 1.0}


def test_a_judge_that_fails_leaves_the_session_unrewarded() -> None:
    async def agent(task: Payload, session: AgentSession) -> None:
        return None

    def judge(task: Payload, result: Payload) -> float:
        raise KeyError("answer")

    ended = closed(run(CallableAgent(agent, THREADS), judge=judge))
    assert ended == ("unrewarded", "environment")


def test_an_agent_that_raises_closes_its_session_as_aborted() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        raise RuntimeError("lost the thread")

    gateway = run(CallableAgent(agent, THREADS))
    assert closed(gateway) == ("aborted", "environment")
    reason = str(gateway.calls[-1].body["reason"])
    assert reason.startswith("Traceback")
    assert reason.endswith("RuntimeError: lost the thread")


@pytest.mark.parametrize("value", [float("nan"), {"reward": float("nan")}])
def test_an_agent_whose_reward_is_no_number_closes_its_session_as_aborted(value: object) -> None:
    """It is the agent's fault, whether or not there is a judge, and needs no traceback."""

    async def agent(task: Payload, session: AgentSession) -> object:
        return value

    gateway = run(CallableAgent(agent, THREADS))
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.calls[-1].body["reason"] == "a reward is a finite number, not nan"


def test_an_agent_that_calls_exit_does_not_end_the_process() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        sys.exit(3)

    assert closed(run(CallableAgent(agent, THREADS))) == ("aborted", "environment")


def test_an_agent_is_stopped_at_its_tasks_deadline() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        await asyncio.Event().wait()
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), a_task(limit_s=0.2))
    assert closed(gateway) == ("timeout", "policy")


def test_the_clock_of_an_agent_stands_while_no_engine_can_answer() -> None:
    serving = ServingTime()

    async def agent(task: Payload, session: AgentSession) -> float:
        serving.note([heartbeat(state="starting", at_ms=now_ms())])
        with suppress(TimeoutError):  # as long as nothing answers its call
            await asyncio.wait_for(asyncio.Event().wait(), 20 * LIMIT_S)
        serving.note([heartbeat(state="ready", at_ms=now_ms())])
        return 1.0

    gateway = run(
        CallableAgent(agent, THREADS), watched=WatchedRun(serving=serving), time_limit_s=LIMIT_S
    )
    assert closed(gateway) == ("complete", "policy")


def test_the_clock_of_an_agent_goes_on_once_an_engine_can_answer() -> None:
    serving = ServingTime()

    async def agent(task: Payload, session: AgentSession) -> float:
        serving.note([heartbeat(state="asleep", at_ms=now_ms())])
        serving.note([heartbeat(state="ready", at_ms=now_ms())])
        await asyncio.Event().wait()
        return 1.0

    gateway = run(
        CallableAgent(agent, THREADS), watched=WatchedRun(serving=serving), time_limit_s=LIMIT_S
    )
    assert closed(gateway) == ("timeout", "policy")


def test_a_task_that_waited_while_its_engine_was_away_has_its_time() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    task = replace(a_task(limit_s=0), issued_at_ms=now_ms() - 40_000)
    assert run(CallableAgent(agent, THREADS), task).calls == []
    seconds = [0.0]
    serving = ServingTime(lambda: seconds[0])
    serving.elapsed_s([task.policy])
    serving.note([heartbeat(state="asleep", at_ms=now_ms())])
    seconds[0] = 50.0
    assert closed(
        run(CallableAgent(agent, THREADS), task, watched=WatchedRun(serving=serving))
    ) == (
        "complete",
        "policy",
    )


def test_an_agent_that_waited_in_the_queue_is_not_punished_for_its_time() -> None:
    async def agent(task: Payload, session: AgentSession) -> float:
        await asyncio.Event().wait()
        return 1.0

    waited = replace(a_task(limit_s=0.2), issued_at_ms=0)
    assert closed(run(CallableAgent(agent, THREADS), waited)) == ("aborted", "infrastructure")


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


def test_all_tries_of_a_call_have_one_key_and_no_other_call_has_it() -> None:
    answers = iter([refusal(504, "expired"), refusal(503, "kafka")])

    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return next(answers, None) or accepting(path, body)

    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), answering=answering)
    again = run(CallableAgent(agent, THREADS))
    *tries, reward, close = (call.key for call in gateway.calls)
    assert len(tries) == 3 and len(set(tries)) == 1 and all(tries)
    assert len({tries[0], reward, close, *(call.key for call in again.calls)}) == 6


def test_a_busy_gateway_is_asked_again() -> None:
    answers = iter([refusal(503, "kafka"), refusal(429, "busy")])

    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return next(answers, None) or accepting(path, body)

    async def agent(task: Payload, session: AgentSession) -> float:
        return 1.0

    gateway = run(CallableAgent(agent, THREADS), answering=answering)
    assert gateway.paths()[:3] == ["/sessions"] * 3
    assert closed(gateway) == ("complete", "policy")


def test_a_gateway_that_stays_away_until_the_deadline_costs_the_task_only() -> None:
    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        return refusal(503, "kafka") if path == "/sessions" else refusal(404, "unknown_session")

    gateway = run(CallableAgent(never, THREADS), a_task(limit_s=0.5), answering)
    assert set(gateway.paths()[:-1]) == {"/sessions"}
    assert closed(gateway) == ("aborted", "infrastructure")


def test_a_session_that_may_be_opened_behind_its_deadline_is_closed() -> None:
    """The manager carries the call out once it is back, and no agent would close the session."""
    away = iter([refusal(503, "manager"), refusal(504, "timeout")])

    def answering(path: str, body: Payload) -> tuple[int, Payload]:
        if path == "/sessions":
            return SILENCE
        return next(away, None) or accepting(path, body)

    gateway = run(CallableAgent(never, THREADS), a_task(limit_s=0.5), answering, call_limit_s=0.2)
    assert gateway.paths()[-3:] == [f"/sessions/{SESSION}/close"] * 3
    assert closed(gateway) == ("aborted", "infrastructure")


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
