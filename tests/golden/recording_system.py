"""All processes of the data plane with several policies, and agents that call them."""

import json
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES, fleet_key
from tests import http
from tests.agents.engine.worker import RECORD
from tests.builders.own_topics import SMALL
from tests.builders.records import control, fleet
from tests.e2e.running_system import RunningSystem, running_system
from tests.golden.golden_log import GoldenRecord
from tests.waiting import until

EXACT = Sampling(temperature=1.0)
RENDERER = RendererSettings("qwen3", thinking_retention="all")
ACTING: dict[str, dict[str, Any]] = {
    "acting": {"strictness": "arguments", "overrides": EXACT},
    "by-ids": {"strictness": "ids", "overrides": EXACT},
    "free": {"strictness": "exact"},
    "lenient": {"strictness": "content", "train_inexact": True},
    "voting": {"strictness": "arguments", "overrides": EXACT, "siblings": "all"},
}
"""Policies that the acting engine serves."""
LARGE, UNSERVED, BY_HAND = "large", "unserved", "by-hand"
"""A policy with a huge context, one that no worker serves, and one whose worker is the test."""
KEY_NAME, API_KEY = "harness", secrets.token_hex(16)
TURN_TIMEOUT_S = 45


@dataclass
class RecordingSystem:
    """The running system, and the sessions that were opened in it."""

    running: RunningSystem
    opened: list[str] = field(default_factory=list)

    def agent(self, session_id: str, policy: str = "acting", **more: Any) -> "Agent":
        """Open a session; return the agent that works in it."""
        answer = self.running.admin("/sessions", session_id=session_id, policy=policy, **more)
        assert answer.status_code == 201, answer.text
        self.opened.append(session_id)
        return Agent(self.running, session_id, answer.json()["base_url"], answer.json()["api_key"])

    def unopened(self, **headers: str) -> "Agent":
        """Return an agent with an API key, whose first request opens a session."""
        url = f"{self.running.url}/v1"
        agent = Agent(self.running, "", url, API_KEY, headers)
        return agent

    def end(self, session_id: str, *rewards: float, **close: Any) -> None:
        """Reward and close a session."""
        for number, value in enumerate(rewards):
            final = number == len(rewards) - 1
            self.reward(session_id, value, final=final)
        self.running.admin(f"/sessions/{session_id}/close", **close).raise_for_status()

    def reward(self, session_id: str, value: float, **more: Any) -> None:
        """Assign a reward."""
        path = f"/sessions/{session_id}/reward"
        self.running.admin(path, value=value, **more).raise_for_status()

    def close_twice(self, session_id: str) -> None:
        """Close a session, and repeat the call by its idempotency key."""
        key = secrets.token_hex(8)  # another one for the next session of the same name
        for _ in range(2):
            http.post(
                f"{self.running.url}/sessions/{session_id}/close",
                json={},
                headers={
                    "authorization": f"Bearer {self.running.admin_key}",
                    "idempotency-key": key,
                },
                timeout=60,
            ).raise_for_status()

    def freeze(self, worker: str) -> None:
        """Stop a process in the middle of its work."""
        self.running.processes[worker].send_signal(signal.SIGSTOP)

    def thaw(self, worker: str) -> None:
        """Let a frozen process go on."""
        self.running.processes[worker].send_signal(signal.SIGCONT)

    def kill(self, process: str) -> None:
        """Kill a process."""
        os.kill(self.running.processes[process].pid, signal.SIGKILL)
        self.running.processes[process].wait()


@dataclass
class Agent:
    """The client of one session, in each dialect."""

    running: RunningSystem
    session_id: str
    base_url: str
    api_key: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            timeout=120,
            max_retries=0,
            default_headers=self.headers,
        )

    @property
    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            base_url=self.base_url.removesuffix("/v1"),
            api_key=self.api_key,
            timeout=120,
            max_retries=0,
            default_headers=self.headers,
        )

    def post(
        self, path: str, body: dict[str, Any], timeout_s: float = 120, **headers: str
    ) -> httpx.Response:
        """Send one call; header names are given with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return http.post(
            f"{self.base_url}{path}",
            json={"model": "any", **body},
            headers={"authorization": f"Bearer {self.api_key}", **self.headers, **named},
            timeout=timeout_s,
        )


def records(kafka: KafkaSettings, trajectories: int) -> list[GoldenRecord]:
    """Return every record on Kafka; waits until there are so many trajectories."""
    reader = Reader(kafka, "golden", rules=ReadingRules(decode=Raw))
    places = [(topic.name, n) for topic in SMALL.values() for n in range(topic.partitions)]
    reader.assign(dict.fromkeys(places, BEGINNING))
    ends, entries = reader.ends(places), list[GoldenRecord]()

    def read_all() -> bool:
        for item in reader.poll(0.2):
            assert isinstance(item.record, Raw)
            key = None if item.record.key is None else item.record.key.decode()
            entries.append(GoldenRecord(*item[:4], key, tuple(item.headers), item.record.value))
        made = sum(entry.topic == TRAJECTORIES.name for entry in entries)
        # The markers of transactions lie behind the last records of `trajectories`.
        read = {place for place in places if reader.position(place) >= ends[place]}
        return made >= trajectories and {p for p in places if p[0] != TRAJECTORIES.name} <= (
            read | {place for place in places if ends[place] <= 0}
        )

    until(read_all, "the ends of all topics", 120)
    reader.close()
    return entries


@contextmanager
def recording_system(broker: KafkaSettings, directory: Path) -> Iterator[RecordingSystem]:
    """Yield all processes, ready to serve; torch workers are w0 and w1, the manager is m0."""
    with running_system(broker, directory) as made:
        make_tokenizer(directory / "tokenizer")
        made.publish_weights(0, seed=1)
        for policy, fields in ACTING.items():
            _publish(made, policy, directory / "tokenizer", max_context=4096, **fields)
        for policy, room in ((LARGE, 1 << 20), (UNSERVED, 4096), (BY_HAND, 4096)):
            _publish(made, policy, directory / "tokenizer", max_context=room, overrides=EXACT)
        made.start_gateway(
            SEAMLESSFLOW_GATEWAY__API_KEYS=json.dumps({KEY_NAME: API_KEY}),
            SEAMLESSFLOW_GATEWAY__POLICY="acting",
            SEAMLESSFLOW_GATEWAY__DISCONNECT_GRACE_S="1",
            SEAMLESSFLOW_GATEWAY__TURN_TIMEOUT_S=str(TURN_TIMEOUT_S),
        )
        start_manager(made, "m0")
        _start_workers(made, directory)
        made.await_ready()
        yield RecordingSystem(made)


def start_manager(made: RunningSystem, member: str) -> None:
    """Start a manager process."""
    made.start(member, "seamlessflow.consumers.trajectories", SEAMLESSFLOW_MANAGER__SLOT=member)


def _start_workers(made: RunningSystem, directory: Path) -> None:
    for worker in ("w0", "w1"):
        made.start_worker(worker)
    for policy in (*ACTING, LARGE):
        acting = policy in ACTING
        made.start(
            policy,
            "tests.agents.engine.worker" if acting else "seamlessflow.producers.rollout",
            SEAMLESSFLOW_ROLLOUT__WORKER=policy,
            SEAMLESSFLOW_ROLLOUT__POLICY=policy,
            SEAMLESSFLOW_ROLLOUT__ENGINE="torch" if acting else "scripted",
            **{RECORD: str(directory / "sampled.jsonl")},
        )
    for slot, worker in enumerate(("w0", "w1", *ACTING, LARGE)):
        made.give_role(worker, slot)


def _publish(made: RunningSystem, policy: str, directory: Path, **fields: Any) -> None:
    """Publish a policy that is a tokenizer only."""
    weights = fleet.weights(
        policy=policy,
        directory=str(directory),
        tokenizer_directory=str(directory),
        tokenizer_hash=rendering_hash(directory, RENDERER),
        renderer=RENDERER.to_json(),
        at_ms=now_ms(),
        **fields,
    )
    published = control.published(policy=policy, directory=str(directory), at_ms=now_ms())
    made.producer.send(FLEET.name, weights, key=fleet_key(weights))
    made.producer.send(CONTROL.name, published)
    made.producer.flush(90)
