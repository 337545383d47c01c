"""Conversations of a golden log in which workers, managers and clients go, or do wrong."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import orjson

from seamlessflow.infra.clock import now_ms
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import SESSIONS
from tests.e2e.running_system import POLICY
from tests.golden.conversations import chat, user
from tests.golden.hand import MISTAKES, Hand
from tests.golden.recording_system import BY_HAND, UNSERVED, Agent, RecordingSystem, start_manager

LONG = {"max_tokens": 480, "stream": True}
ROUNDS = 10


@contextmanager
def streaming(agent: Agent) -> Iterator[tuple[httpx.Response, r.TurnDispatched]]:
    """Yield a streamed answer of which something came, and the dispatch of its turn."""
    url, key = f"{agent.base_url}/chat/completions", f"Bearer {agent.api_key}"
    body = {"model": "any", "messages": [user("key 7")], **LONG}
    with (
        httpx.Client(timeout=120) as client,
        client.stream("POST", url, json=body, headers={"authorization": key}) as answer,
    ):
        session_id = agent.session_id
        agent.running.expect(r.TurnProgressed, lambda record: record.session_id == session_id)
        started = agent.running.expect(
            r.TurnDispatched, lambda record: record.session_id == session_id
        )
        yield answer, started


def long_turn(system: RecordingSystem, name: str, disturb: Callable[[Any], object]) -> int:
    """Disturb a streamed turn; return the number of versions that sampled it."""
    agent = system.agent(name, POLICY)
    with streaming(agent) as (answer, dispatched):
        disturb(dispatched)
        answer.read()
    completed = agent.running.expect(r.TurnCompleted, lambda record: record.session_id == name)
    begun = orjson.loads(completed.message)["content"] or ""
    chat(agent, [user("key 7"), {"role": "assistant", "content": begun}, user("on")], max_tokens=8)
    system.end(name, 1.0)
    return len({span.version_max for span in completed.spans})


def new_weights(system: RecordingSystem) -> None:
    """Replace the weights in mid-turn, until a turn has tokens of two versions."""
    for version in range(1, ROUNDS):

        def publish(_: r.TurnDispatched, version: int = version) -> None:
            system.running.publish_weights(version, seed=version)

        if long_turn(system, f"weights-{version}", publish) > 1:
            return


def workers_go(system: RecordingSystem) -> None:
    made = system.running
    long_turn(system, "preempted", lambda turn: made.preempt(turn.worker, turn.incarnation))
    made.expect(r.RoleReleased)
    made.start_worker("w2")
    made.give_role("w2", 10)

    def kill(turn: r.TurnDispatched) -> None:
        system.kill(turn.worker)
        made.lose(turn.worker, turn.incarnation)

    long_turn(system, "killed", kill)
    made.start_worker("w3")
    made.give_role("w3", 11)


def turns_without_an_end(system: RecordingSystem) -> None:
    """Close a session in mid-turn, and leave in mid-turn, while the worker is frozen."""
    cut = system.agent("cut", POLICY)
    with streaming(cut) as (_, dispatched):
        system.freeze(dispatched.worker)
        system.end("cut", 1.0, status="aborted", reason="given up", cause="infrastructure")
    system.thaw(dispatched.worker)
    left = system.agent("left", POLICY)
    with streaming(left) as (_, dispatched):
        system.freeze(dispatched.worker)
    left.running.expect(r.TurnCancelled, lambda record: record.session_id == "left")
    system.thaw(dispatched.worker)
    chat(left, [user("key 7")], max_tokens=8)
    system.end("left", 1.0)


def failures(system: RecordingSystem) -> None:
    waiting = system.agent("no-worker", UNSERVED)
    agent = system.agent("failed")
    with ThreadPoolExecutor(2) as calls:
        late = calls.submit(waiting.post, "/chat/completions", {"messages": [user("anyone?")]})
        # The script has no so many lines.
        turns = [user("[script adding] x")]
        for _ in range(4):
            turns += [{"role": "assistant", "content": "no"}, user("x")]
        refused = agent.post("/chat/completions", {"messages": turns})
        assert refused.status_code == 400, refused.text
        long = agent.post("/chat/completions", {"messages": [user("word " * 5000)]})
        assert long.status_code == 400, long.text
        chat(agent, [user("well?")])
        system.end("failed", await_reward_s=1)
        assert late.result().status_code == 503
    system.end("no-worker", 0.0)
    system.agent("idle", max_idle_s=1.0)
    chat(system.agent("idle-cut", POLICY, max_idle_s=1.0), [user("key 7")], max_tokens=2)
    overflowing = system.agent("overflow")
    chat(overflowing, [user("well?")])
    overflowing.post("/chat/completions", {"messages": [user("word " * 5000)]})
    system.end("overflow")
    system.agent("unrewarded")
    system.end("unrewarded", await_reward_s=1)


def worker_by_hand(system: RecordingSystem) -> None:
    hand = Hand(system)
    agent = system.agent("by-hand", BY_HAND)
    for mistake in MISTAKES:
        hand.answer_one(agent, mistake)
    system.end("by-hand", 1.0)


def takeover(system: RecordingSystem) -> None:
    """Kill the manager in the middle of sessions; a late event of its epoch comes all the same."""
    made = system.running
    agents = [system.agent(f"takeover-{number}") for number in range(6)]
    for agent in agents:
        chat(agent, [user("before")])
    system.kill("m0")
    with ThreadPoolExecutor(len(agents)) as calls:
        body = {"messages": [user("meanwhile")], "max_tokens": 20}
        asked = [calls.submit(agent.post, "/chat/completions", body) for agent in agents]
        start_manager(made, "m1")
        assert {call.result().status_code for call in asked} == {200}
    closed = r.SessionClosed(
        session_id="takeover-0",
        epoch=1,
        at_ms=now_ms(),
        status="timeout",
        reason="idle",
        cause="environment",
        await_reward_until_ms=now_ms(),
    )
    made.producer.send(SESSIONS.name, closed, key="takeover-0")
    made.producer.flush(30)
    for agent in agents:
        chat(
            agent, [user("before"), {"role": "assistant", "content": "A short answer."}, user("?")]
        )
        system.end(agent.session_id, 1.0)


def all_of_them(system: RecordingSystem) -> None:
    """Have all these conversations; the takeover is the last."""
    for conversation in (
        new_weights,
        workers_go,
        turns_without_an_end,
        worker_by_hand,
        failures,
        takeover,
    ):
        conversation(system)
