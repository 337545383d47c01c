"""Weights change, workers go, nobody serves: the agent sees one slow answer without a gap."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import openai
import orjson
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.e2e.parity import assert_parity, versions
from tests.e2e.running_system import POLICY, RunningSystem, running_system

pytestmark = pytest.mark.kafka
AT_ONCE = 8
ROUNDS = 10
CLIENT_TIMEOUT_S = 60
SHORT_S = 15
"""Time-out of agents that outlast it, a few times the pause between signs of life."""
KEEP_ALIVE_S = 3


@pytest.fixture
def flow(broker: KafkaSettings, tmp_path: Path) -> Iterator[RunningSystem]:
    """Yield gateway and manager with policy version 0 and no worker yet."""
    with running_system(broker, tmp_path) as made:
        made.publish_weights(0, seed=1)
        made.start_gateway(SEAMLESSFLOW_GATEWAY__STREAM_KEEP_ALIVE_S=str(KEEP_ALIVE_S))
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.await_ready()
        yield made


def serve(made: RunningSystem, *workers: str) -> dict[str, r.RoleAcquired]:
    """Start workers and assign them the rollout role."""
    for worker in workers:
        made.start_worker(worker)
    return {worker: made.give_role(worker, slot) for slot, worker in enumerate(workers)}


def client_of(
    made: RunningSystem, session_id: str, timeout_s: float = CLIENT_TIMEOUT_S, retries: int = 2
) -> openai.OpenAI:
    body = made.admin("/sessions", session_id=session_id, policy=POLICY).raise_for_status().json()
    return openai.OpenAI(
        base_url=body["base_url"], api_key=body["api_key"], timeout=timeout_s, max_retries=retries
    )


def read_stream(client: openai.OpenAI) -> tuple[str, str]:
    """Run one streamed turn; return its text, which may be empty, and how it ended."""
    chunks = client.chat.completions.create(
        model=POLICY,
        messages=[{"role": "user", "content": "key 7"}],
        max_tokens=480,
        stream=True,
    )
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return "".join(choice.delta.content or "" for choice in parts), parts[-1].finish_reason or ""


def read_whole(client: openai.OpenAI) -> str:
    """Run one turn that is not streamed; return the id of its answer."""
    return client.chat.completions.create(
        model=POLICY, messages=[{"role": "user", "content": "key 7"}], max_tokens=16
    ).id


def disturbed_turns(
    made: RunningSystem, name: str, disturb: Callable[[r.TurnDispatched], object]
) -> list[r.Trajectory]:
    """Run sessions of one streamed turn each, and disturb them once the first one samples."""
    sessions = [f"{name}-{number}" for number in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as agents:
        texts: list[Future[tuple[str, str]]] = [
            agents.submit(read_stream, client_of(made, session)) for session in sessions
        ]
        progressed = made.expect(r.TurnProgressed, lambda record: record.session_id in sessions)
        dispatched = made.expect(
            r.TurnDispatched, lambda record: record.session_id == progressed.session_id
        )
        disturb(dispatched)
    for session_id, text in zip(sessions, texts, strict=True):
        said = made.expect(
            r.TurnCompleted,
            lambda record, expected=session_id: record.session_id == expected,  # type: ignore[misc]
        )
        assert (orjson.loads(said.message)["content"] or "") == text.result()[0]
    return [made.end(session_id) for session_id in sessions]


def test_weights_that_change_in_mid_turn_are_told_token_by_token(flow: RunningSystem) -> None:
    serve(flow, "w0")
    for version in range(1, ROUNDS):
        weights = {version - 1: flow.current}
        trajectories = disturbed_turns(
            flow,
            f"v{version}",
            lambda _, number=version: flow.publish_weights(number, seed=number),  # type: ignore[misc]
        )
        weights[version] = flow.current
        mixed = [session for session in trajectories if len(versions(session)) == 2]
        for trajectory in mixed:
            assert_parity(weights, trajectory)
        if mixed:
            return
    pytest.fail(f"no turn was under way when weights changed, in {ROUNDS} rounds")


def interrupted_turns(
    made: RunningSystem,
    disturb: Callable[[r.TurnDispatched], object],
    undo: Callable[[r.TurnDispatched], object],
) -> list[r.Trajectory]:
    """Disturb a worker until that interrupts a turn: all of its turns may just have ended."""
    for number in range(ROUNDS):
        disturbed: list[r.TurnDispatched] = []

        def once(turn: r.TurnDispatched, turns: list[r.TurnDispatched] = disturbed) -> None:
            turns.append(turn)
            disturb(turn)

        trajectories = disturbed_turns(made, f"r{number}", once)
        if any(trajectory.interrupted_turns for trajectory in trajectories):
            return trajectories
        undo(disturbed[0])
    pytest.fail(f"no turn was under way at the worker that was disturbed, in {ROUNDS} rounds")


def test_turns_of_a_preempted_worker_go_on_elsewhere(flow: RunningSystem) -> None:
    incarnations = {w: role.incarnation for w, role in serve(flow, "w0", "w1").items()}

    trajectories = interrupted_turns(
        flow,
        lambda turn: flow.preempt(turn.worker, incarnations[turn.worker]),
        lambda turn: flow.give_role(turn.worker, turn.slot),
    )

    flow.expect(r.RoleReleased)
    for trajectory in trajectories:
        assert_parity(flow.current, trajectory)


def test_turns_of_a_killed_worker_go_on_elsewhere(flow: RunningSystem) -> None:
    serve(flow, "w0", "w1")

    def kill(turn: r.TurnDispatched) -> None:
        os.kill(flow.processes[turn.worker].pid, signal.SIGKILL)
        flow.lose(turn.worker, turn.incarnation)

    def replace(turn: r.TurnDispatched) -> None:
        flow.start_worker(f"{turn.worker}r")
        flow.give_role(f"{turn.worker}r", turn.slot)

    for trajectory in interrupted_turns(flow, kill, replace):
        assert_parity(flow.current, trajectory)


@pytest.mark.slow
def test_agents_outlast_a_fleet_without_workers_for_longer_than_their_time_out(
    flow: RunningSystem,
) -> None:
    """A stream is kept alive; a plain call times out, is retried, and joins its turn."""
    plain = client_of(flow, "plain", SHORT_S, retries=8)
    stream = client_of(flow, "streamed", SHORT_S, retries=0)
    with ThreadPoolExecutor(2) as agents:
        streamed = agents.submit(read_stream, stream)
        answered = agents.submit(read_whole, plain)
        joined = flow.expect(r.TurnJoined)
        serve(flow, "w0")
        assert answered.result() == f"chatcmpl-{joined.turn_id}"
        assert streamed.result()[1] in ("stop", "length", "tool_calls")

    for session_id in ("plain", "streamed"):
        trajectory = flow.end(session_id)
        assert trajectory.turns == 1
        assert_parity(flow.current, trajectory)
