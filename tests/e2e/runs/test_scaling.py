"""Gateways and managers join and leave under load: unmodified clients see nothing of it."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.e2e.running_system import (
    DEADLINE_S,
    POLICY,
    RunningSystem,
    client_of,
    running_system,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka
SESSIONS = [f"agent-{number}" for number in range(4)]
SHARED_PORT = {"SEAMLESSFLOW_GATEWAY__REUSE_PORT": "true"}
FURTHER_TURNS = 5


@dataclass
class Load:
    """Agents that call one after the other until they are asked to end, each with a session."""

    turns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SESSIONS, 0))
    ending: threading.Event = field(default_factory=threading.Event)

    def act(self, session_id: str, client: openai.OpenAI) -> None:
        """Call until the end; an error of the client, after its own retries, is raised."""
        while not self.ending.is_set():
            client.chat.completions.create(
                model=POLICY,
                messages=[{"role": "user", "content": f"key {self.turns[session_id]}"}],
                max_tokens=8,
            )
            self.turns[session_id] += 1

    def await_further(self, agents: dict[str, Future[None]]) -> None:
        """Wait until each agent has had a few more answers, or an error."""
        wanted = {name: count + FURTHER_TURNS for name, count in self.turns.items()}
        until(
            lambda: (
                any(agent.done() for agent in agents.values())
                or all(self.turns[name] >= count for name, count in wanted.items())
            ),
            "further turns",
            DEADLINE_S,
        )


@pytest.fixture
def flow(broker: KafkaSettings, tmp_path: Path) -> Iterator[RunningSystem]:
    """Yield a system of one gateway, one manager and one worker."""
    with running_system(broker, tmp_path) as made:
        made.publish_weights(0, seed=1)
        made.start_gateway(**SHARED_PORT)
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start(
            "w0",
            "seamlessflow.producers.rollout",
            SEAMLESSFLOW_ROLLOUT__WORKER="w0",
            SEAMLESSFLOW_ROLLOUT__POLICY=POLICY,
            SEAMLESSFLOW_ROLLOUT__ENGINE="scripted",
        )
        made.give_role("w0", 0)
        made.await_ready()
        yield made


def join(made: RunningSystem) -> None:
    """Start a gateway on the same port and a manager; wait until both have work."""
    made.records.clear()
    first = made.expect(r.GatewayHeartbeat).gateway
    made.start(
        "second gateway",
        "seamlessflow.producers.gateway",
        SEAMLESSFLOW_GATEWAY__PORT=str(made.port),
        SEAMLESSFLOW_GATEWAY__SECRET=made.secret,
        SEAMLESSFLOW_GATEWAY__ADMIN_KEY=made.admin_key,
        **SHARED_PORT,
    )
    made.start("second manager", "seamlessflow.consumers.trajectories")
    second = made.expect(r.GatewayHeartbeat, lambda heartbeat: heartbeat.gateway != first).gateway
    made.expect(r.PartitionClaimed)
    until(lambda: gateway_of_a_call(made) == second, "the second gateway to listen")


def gateway_of_a_call(made: RunningSystem) -> str:
    """Call on a connection of its own; return the gateway that the kernel chose for it."""
    assert made.admin("/sessions/unknown/close").status_code == 404
    address = made.expect(r.CommandRefused).reply
    return address.gateway if address else ""


def leave(made: RunningSystem, *names: str) -> None:
    """Ask processes to end in order, and wait until they have."""
    for name in names:
        made.processes[name].send_signal(signal.SIGTERM)
    for name in names:
        assert made.processes[name].wait(DEADLINE_S) == 0


def test_a_gateway_and_a_manager_join_and_leave_without_an_error_for_an_agent(
    flow: RunningSystem,
) -> None:
    load = Load()
    with ThreadPoolExecutor(len(SESSIONS)) as pool:
        clients = {name: client_of(flow, name) for name in SESSIONS}
        agents = {name: pool.submit(load.act, name, clients[name]) for name in SESSIONS}
        try:
            load.await_further(agents)
            join(flow)
            load.await_further(agents)
            leave(flow, "gateway", "manager")
            load.await_further(agents)
        finally:
            load.ending.set()
        for agent in agents.values():
            agent.result(DEADLINE_S)

    ended = {name: flow.end(name).turns for name in SESSIONS}
    assert ended == load.turns
    again = [record for record in flow.records if isinstance(record, r.Trajectory)]
    assert again == []
