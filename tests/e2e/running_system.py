"""All processes of the data plane, with a test as scheduler and trainer."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import openai

from seamlessflow.demo.model import make_model
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.disk import link_or_copy
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Sampling
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TRAJECTORIES, fleet_key
from tests import http
from tests.builders.own_topics import SMALL, own_topics, small
from tests.builders.records import control, fleet
from tests.waiting import until

R = TypeVar("R", bound=Record)
POLICY = "policy"
DEADLINE_S = 90
REAL_DEADLINE_S = 600
"""For the processes of a real model, on a busy machine."""
TINY = RendererSettings("qwen3", thinking_retention="all")
"""Renderer of the tiny model."""
MODEL = "SEAMLESSFLOW_TEST_MODEL"
"""Variable that names the directory of a real model, with which these suites then run."""


@dataclass
class RunningSystem:
    """Processes, and the records that they write on the topics the test reads."""

    kafka: KafkaSettings
    directory: Path
    producer: Producer
    reader: Reader
    admin_key: str = field(default_factory=lambda: secrets.token_hex(16))
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    port: int = field(default_factory=free_port)
    records: list[Record] = field(default_factory=list)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    model: Path | None = field(default_factory=lambda: _named_model())
    """A real model, in place of a tiny one with random weights."""
    max_context: int = 512
    overrides: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    train_inexact: bool = False
    renderer: RendererSettings | None = None
    """None: that of the tiny model, or the one found for a real model."""
    assignments: int = 0
    current: Path = Path()
    """The newest weights."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _deadline_s(self) -> float:
        return DEADLINE_S if self.model is None else REAL_DEADLINE_S

    def start(self, name: str, module: str, **settings: str) -> None:
        """Start `python -m module`."""
        environment = {
            **os.environ,
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            **settings,
        }
        self.processes[name] = subprocess.Popen([sys.executable, "-m", module], env=environment)

    def start_gateway(self, **settings: str) -> None:
        """Start the gateway of `url`, with more settings."""
        self.start(
            "gateway",
            "seamlessflow.producers.gateway",
            SEAMLESSFLOW_GATEWAY__PORT=str(self.port),
            SEAMLESSFLOW_GATEWAY__SECRET=self.secret,
            SEAMLESSFLOW_GATEWAY__ADMIN_KEY=self.admin_key,
            **settings,
        )

    def start_worker(self, worker: str) -> None:
        self.start(
            worker,
            "seamlessflow.producers.rollout",
            SEAMLESSFLOW_ROLLOUT__WORKER=worker,
            SEAMLESSFLOW_ROLLOUT__POLICY=POLICY,
            SEAMLESSFLOW_ROLLOUT__TORCH__THREADS="1",
        )

    def publish_weights(self, version: int, seed: int) -> Path:
        """Publish a policy version as the trainer does."""
        facts = Manifest(
            policy=POLICY,
            version=version,
            optimizer_step=version,
            lineage="test",
            dtype="float32",
        )
        root = self.directory / "weights"
        made = publish(root, facts, lambda draft: self._fill(draft, seed), sync=False).weights
        self._announce_weights(made)
        self.current = made.path
        return made.path

    def _fill(self, draft: Path, seed: int) -> None:
        if self.model is None:
            make_model(draft, seed)
            return
        for file in self.model.iterdir():
            link_or_copy(file, draft / file.name)

    def _announce_weights(self, made: PublishedWeights) -> None:
        settings = self.renderer or (TINY if self.model is None else found_for(self.model))
        weights = fleet.weights(
            policy=POLICY,
            **asdict(made),
            tokenizer_directory=made.directory,
            tokenizer_hash=rendering_hash(made.path, settings),
            renderer=settings.to_json(),
            max_context=self.max_context,
            overrides=self.overrides,
            train_inexact=self.train_inexact,
            at_ms=now_ms(),
        )
        published = control.published(policy=POLICY, **asdict(made), at_ms=now_ms())
        self.producer.send(FLEET.name, weights, key=fleet_key(weights))
        self.producer.send(CONTROL.name, published)
        self.producer.flush(30)

    def give_role(self, worker: str, slot: int, lost: str = "") -> r.RoleAcquired:
        """Assign the rollout role to a started worker, not to its `lost` incarnation; return its
        acquisition."""
        heartbeat = self.expect(
            r.WorkerHeartbeat, lambda record: record.worker == worker and record.incarnation != lost
        )
        number = self._assign(worker, heartbeat.incarnation, "rollout", slot)
        return self.expect(r.RoleAcquired, lambda record: record.assignment == number)

    def preempt(self, worker: str, incarnation: str) -> None:
        """Assign the role `train` to a worker that rolls out."""
        self._assign(worker, incarnation, "train", None)

    def _assign(self, worker: str, incarnation: str, role: str, slot: int | None) -> int:
        self.assignments += 1
        assigned = control.assigned(
            worker,
            role,
            self.assignments,
            epoch=0,
            at_ms=now_ms(),
            incarnation=incarnation,
            slot=slot,
            deadline_ms=now_ms() + 60_000,
        )
        self.producer.send(CONTROL.name, assigned)
        return self.assignments

    def lose(self, worker: str, incarnation: str) -> None:
        """Report a worker as lost, as the scheduler does."""
        lost = control.lost(worker, epoch=0, at_ms=now_ms(), incarnation=incarnation)
        self.producer.send(CONTROL.name, lost)

    def admin(self, path: str, **body: object) -> httpx.Response:
        """Call the session API."""
        return http.post(
            f"{self.url}{path}",
            json=body,
            headers={"authorization": f"Bearer {self.admin_key}"},
            timeout=60,
        )

    def end(self, session_id: str, reward: float = 1.0) -> r.Trajectory:
        """Reward and close a session; return its trajectory."""
        self.admin(f"/sessions/{session_id}/reward", value=reward).raise_for_status()
        self.admin(f"/sessions/{session_id}/close").raise_for_status()
        return self.expect(r.Trajectory, lambda record: record.session_id == session_id)

    def await_ready(self) -> None:
        """Wait until the gateway answers and every partition has a manager."""
        until(self._gateway_answers, "the gateway", self._deadline_s)
        unclaimed = set(range(SMALL[SESSIONS.name].partitions))
        while unclaimed:
            unclaimed.discard(self.expect(r.PartitionClaimed).partition)

    def _gateway_answers(self) -> bool:
        try:
            return http.get(f"{self.url}/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def expect(self, kind: type[R], where: Callable[[R], bool] = lambda record: True) -> R:
        """Return and remove the first such record; wait for it."""
        deadline = time.monotonic() + self._deadline_s
        while time.monotonic() < deadline:
            for record in self.records:
                if isinstance(record, kind) and where(record):
                    self.records.remove(record)
                    return record
            self.records += [received.record for received in self.reader.poll(0.1)]
        raise AssertionError(f"no {kind.__name__} within {self._deadline_s} s")


def _named_model() -> Path | None:
    named = os.environ.get(MODEL)
    return Path(named) if named else None


def client_of(made: RunningSystem, session_id: str) -> openai.OpenAI:
    """Open a session; return its client."""
    opened = made.admin("/sessions", session_id=session_id, policy=POLICY)
    assert opened.status_code == 201, opened.text
    body = opened.json()
    return openai.OpenAI(base_url=body["base_url"], api_key=body["api_key"], timeout=60)


@contextmanager
def running_system(broker: KafkaSettings, directory: Path) -> Iterator[RunningSystem]:
    """Yield new topics without a process; kill the processes at the end."""
    with own_topics(broker) as kafka, _on_topics(kafka, directory) as made:
        yield made


@contextmanager
def _on_topics(kafka: KafkaSettings, directory: Path) -> Iterator[RunningSystem]:
    create_topics(kafka, SMALL.values())
    reader = Reader(kafka, "test")
    topics = small(SESSIONS, TRAJECTORIES, CONTROL, FLEET)
    places = {(topic.name, n): BEGINNING for topic in topics for n in range(topic.partitions)}
    reader.assign(places)
    made = RunningSystem(kafka, directory, Producer(kafka, "test"), reader)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()
        reader.close()
        made.producer.close()
