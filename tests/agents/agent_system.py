"""Broker, gateway, manager and a worker with the acting engine, for agents to use.

The policy is a tokenizer without a model. Its context has room for the 80 KB of instructions and
tools that coding agents send at once.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from tests import http
from tests.agents.engine import record as engine_record
from tests.agents.engine.record import SampledTurn
from tests.agents.engine.worker import RECORD
from tests.builders.records import control, fleet
from tests.e2e.running_system import POLICY, RunningSystem, running_system

MAX_CONTEXT = 131_072
BY_IDS = "policy-by-ids"
"""A second policy, under which an answer is known by the ids of its calls alone."""
KEY_NAME, API_KEY = "harness", secrets.token_hex(16)
"""Of agents that nobody opens a session for."""
_NOT_REFUSED = ('status="2', 'status="499"', '"none"')
"""Answered, left by the client, or for a path that it does not have."""
RENDERER = RendererSettings("qwen3", thinking_retention="all")


@dataclass
class AgentSystem:
    """The running system, and the acting engine's record."""

    running: RunningSystem
    record: Path

    def open(self, session_id: str, policy: str = POLICY) -> "AgentSession":
        """Open a session for one agent."""
        opened = self.running.admin("/sessions", session_id=session_id, policy=policy)
        assert opened.status_code == 201, opened.text
        answer = opened.json()
        return self._session(session_id, answer["base_url"], answer["api_key"])

    def unopened(self) -> "AgentSession":
        """Return a session that the agent's first request opens, by a name in its header."""
        return self._session("", f"{self.running.url}/v1", API_KEY)

    def sampled(self, since: int) -> list[SampledTurn]:
        """Return the turns that the engine sampled after the first `since`."""
        return engine_record.read(self.record)[since:]

    def refused(self, before: Mapping[str, float]) -> dict[str, float]:
        """Return the number of refused calls to known paths, by route and status."""
        return {
            name: count - before.get(name, 0)
            for name, count in self._answers().items()
            if count > before.get(name, 0)
            and not any(fragment in name for fragment in _NOT_REFUSED)
        }

    def _session(self, session_id: str, base_url: str, api_key: str) -> "AgentSession":
        sampled_before = len(engine_record.read(self.record))
        return AgentSession(self, session_id, base_url, api_key, sampled_before, self._answers())

    def _answers(self) -> dict[str, float]:
        text = http.get(f"{self.running.url}/metrics", timeout=60).text
        lines = (line.rpartition(" ") for line in text.splitlines())
        return {
            name: float(count)
            for name, _, count in lines
            if name.startswith("seamlessflow_gateway_requests_total{")
        }


@dataclass
class AgentSession:
    """One agent's session; `session_id` is empty until the end if the agent's request opens it."""

    system: AgentSystem
    session_id: str
    base_url: str
    """Of the OpenAI dialects, ends with /v1."""
    api_key: str
    sampled_before: int
    answered_before: Mapping[str, float]

    def end(self, reward: float) -> r.Trajectory:
        """Reward and close the session; compare its trajectory with the engine's record.

        Fails if a call of the agent was refused, or if the engine sampled for another session.
        """
        made = self.system.running
        if not self.session_id:
            self.session_id = made.expect(r.SessionOpened, _begun_by_key).session_id
        assert not self.system.refused(self.answered_before)
        trajectory = made.end(self.session_id, reward)
        same_tokens(trajectory, self.system.sampled(self.sampled_before))
        assert [entry.value for entry in trajectory.rewards] == [reward]
        return trajectory


def same_tokens(trajectory: r.Trajectory, sampled: list[SampledTurn]) -> None:
    """Check that the trajectory holds exactly the engine's turns: tokens, log-probs, prompts."""
    nodes = {node.node_id: node for node in trajectory.nodes}

    def node_part(node: r.TrajectoryNode, array: bytes, width: int) -> bytes:
        return array[width * node.start : width * (node.start + node.length)]

    def before(node: r.TrajectoryNode) -> bytes:
        if node.parent < 0:
            return b""
        parent = nodes[node.parent]
        return before(parent) + node_part(parent, trajectory.tokens, 4)[: 4 * node.parent_end]

    recorded = {node.turn_id: node for node in trajectory.nodes if node.origin == "policy"}
    assert sampled
    assert set(recorded) == {turn.turn_id for turn in sampled}
    for turn in sampled:
        node = recorded[turn.turn_id]
        assert node.delivered, turn.turn_id
        assert node_part(node, trajectory.tokens, 4).hex() == turn.tokens
        assert node_part(node, trajectory.logprobs, 4).hex() == turn.logprobs
        assert node_part(node, trajectory.loss_mask, 1) == b"\1" * node.length, node.masked_reason
        assert before(node).hex() == turn.prompt


def _begun_by_key(opened: r.SessionOpened) -> bool:
    return opened.session_id.startswith(f"{KEY_NAME}.")


@contextmanager
def agent_system(broker: KafkaSettings, directory: Path) -> Iterator[AgentSystem]:
    """Yield all processes, ready to serve."""
    record = directory / "sampled.jsonl"
    with running_system(broker, directory) as made:
        make_tokenizer(directory / "policy")
        _publish(made, POLICY, "arguments", directory / "policy")
        _publish(made, BY_IDS, "ids", directory / "policy")
        made.start_gateway(
            SEAMLESSFLOW_GATEWAY__API_KEYS=json.dumps({KEY_NAME: API_KEY}),
        )
        made.start("manager", "seamlessflow.consumers.trajectories")
        for slot, policy in enumerate((POLICY, BY_IDS)):
            made.start(
                policy,
                "tests.agents.engine.worker",
                SEAMLESSFLOW_ROLLOUT__WORKER=policy,
                SEAMLESSFLOW_ROLLOUT__POLICY=policy,
                **{RECORD: str(record)},
            )
            made.give_role(policy, slot)
        made.await_ready()
        yield AgentSystem(made, record)


def _publish(made: RunningSystem, policy: str, strictness: str, directory: Path) -> None:
    """Publish a policy that is a tokenizer only."""
    weights = fleet.weights(
        policy=policy,
        directory=str(directory),
        tokenizer_directory=str(directory),
        tokenizer_hash=rendering_hash(directory, RENDERER),
        renderer=RENDERER.to_json(),
        max_context=MAX_CONTEXT,
        strictness=strictness,
        overrides=Sampling(temperature=1.0),
        at_ms=now_ms(),
    )
    published = control.published(policy=policy, directory=str(directory), at_ms=now_ms())
    made.producer.send(FLEET.name, weights, key=fleet_key(weights))
    made.producer.send(CONTROL.name, published)
    made.producer.flush(90)
