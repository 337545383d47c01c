"""A whole system's processes around a vLLM server that runs already, on loopback.

They are Kafka, gateway, trajectory manager and one worker. The part itself writes the role that a
scheduler would assign, since nothing here moves.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from benchmarks.gpu.part import Lacks
from benchmarks.gpu.vllm.settings import MAX_LENGTH
from benchmarks.load.children import Children
from benchmarks.load.measured_load import open_sessions
from benchmarks.rollout_worker import assignment, first, policy_weights
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.errors import JarsUnavailable
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, REQUESTS, TOPICS, fleet_key

POLICY = "policy"
_SECRET = "secret of the part"
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """A published version, and the server that has loaded it."""

    weights: PublishedWeights
    vllm: VllmSection
    capacity: int


@dataclass(frozen=True, slots=True)
class WholeSystem:
    """Processes that run, and the gateway's address."""

    children: Children
    broker_pid: int
    url: str

    def await_sessions(self) -> None:
        """Wait until sessions on all partitions can be opened. Raises `RuntimeError`."""
        deadline = time.monotonic() + _READY_S
        while True:
            self.children.check()
            try:
                self.sessions(2 * REQUESTS.partitions)
                return
            except (httpx.HTTPError, RuntimeError) as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no session within {_READY_S:g} s") from error
                time.sleep(0.1)

    @property
    def pids(self) -> Mapping[str, int]:
        """The processes whose CPU counts, without the clients."""
        names = ("gateway", "manager", "worker")
        ids = self.children.pids()
        return {"kafka": self.broker_pid, **{name: ids[name] for name in names}}

    def sessions(self, number: int) -> list[str]:
        """Open sessions; return their keys."""
        return open_sessions(self.url, _SECRET, POLICY, number)


@contextmanager
def whole_system(served: Served, data: Path) -> Iterator[WholeSystem]:
    """Yield a system that answers, with its files below `data`. Raises `Lacks`, `TimeoutError`."""
    try:
        with Broker(None) as broker, Children() as children:
            assert broker.pid is not None
            create_topics(broker.settings, TOPICS.values())
            port = free_port()
            _start(children, broker.settings, port, served, data)
            yield WholeSystem(children, broker.pid, f"http://127.0.0.1:{port}")
    except JarsUnavailable as error:
        raise Lacks(f"Kafka: {error}") from error


def _start(children: Children, kafka: KafkaSettings, port: int, served: Served, data: Path) -> None:
    shared = {
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_DATA_DIR": str(data),
    }
    gateway = {
        "SEAMLESSFLOW_GATEWAY__PORT": str(port),
        "SEAMLESSFLOW_GATEWAY__SECRET": _SECRET,
    }
    weights = replace(
        policy_weights(served.weights.path),
        policy=POLICY,
        directory=served.weights.directory,
        manifest_sha256=served.weights.manifest_sha256,
        max_context=MAX_LENGTH,
    )
    worker = {
        "SEAMLESSFLOW_ROLLOUT__WORKER": "w",
        "SEAMLESSFLOW_ROLLOUT__POLICY": POLICY,
        "SEAMLESSFLOW_ROLLOUT__ENGINE": "vllm",
        "SEAMLESSFLOW_ROLLOUT__CAPACITY": str(served.capacity),
        "SEAMLESSFLOW_ROLLOUT__VLLM": served.vllm.model_dump_json(),
    }
    producer = Producer(kafka, "benchmark-scheduler")
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    children.start("manager", "seamlessflow.consumers.trajectories", environment=shared)
    children.start("gateway", "seamlessflow.producers.gateway", environment=shared | gateway)
    children.start("worker", "seamlessflow.producers.rollout", environment=shared | worker)
    beat = first(kafka, FLEET.name, r.WorkerHeartbeat, "w")
    producer.send(CONTROL.name, assignment(beat.incarnation), partition=0)
    first(kafka, CONTROL.name, r.RoleAcquired, "w")
    producer.close()
    children.check()
