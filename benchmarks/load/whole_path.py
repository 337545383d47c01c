"""The whole path of a call: embedded Kafka, gateway, manager, and a worker that answers at once.

Benchmarks start load on it, and read the CPU time of its processes.
"""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.load.children import Children
from benchmarks.load.measured_load import open_sessions
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import PolicyWeights, Sampling
from seamlessflow.schemas.tokens import pack
from seamlessflow.schemas.topics import FLEET, REQUESTS, TOPICS, fleet_key

POLICY = "policy"
SECRET = "secret of the benchmark"
CHUNKS = 20
"""Records in the answer to a streamed call."""
_READY_TIMEOUT_S = 60


@dataclass(frozen=True)
class WholePath:
    """Processes that answer calls, and their addresses."""

    children: Children
    kafka: KafkaSettings
    broker_pid: int
    url: str
    linger_ms: float

    def pids(self) -> Mapping[str, int]:
        """Return all processes' ids by name."""
        return {**self.children.pids(), "broker": self.broker_pid}

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables with which one of our processes finds the broker."""
        return {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers}

    def opened(self, number: int) -> list[str]:
        """Open sessions; return their keys."""
        return open_sessions(self.url, SECRET, POLICY, number)


@contextmanager
def whole_path(answer: str, manager: str = "real", linger_ms: float = 0) -> Iterator[WholePath]:
    """Yield the processes once a call is answered; the worker answers each with this text.

    With the manager `scripted` only the gateway is real.
    """
    with TemporaryDirectory() as scratch, Broker(None) as broker, Children() as children:
        assert broker.pid is not None
        url = f"http://127.0.0.1:{free_port()}"
        path = WholePath(children, broker.settings, broker.pid, url, linger_ms)
        create_topics(path.kafka, TOPICS.values())
        _start(path, Path(scratch), answer, manager)
        yield path


def _start(path: WholePath, scratch: Path, answer: str, manager: str) -> None:
    message = json.dumps({"content": answer, "role": "assistant"}, separators=(",", ":"))
    orders = {
        "bootstrap_servers": path.kafka.bootstrap_servers,
        "linger_ms": path.linger_ms,
        "message": message,
    }
    if manager == "scripted":
        path.children.start("manager", "benchmarks.load.scripted_manager", orders)
    else:
        ids = _published(path, scratch, answer)
        sampled = {"policy": POLICY, "token_ids": base64.b64encode(ids).decode(), "chunks": CHUNKS}
        path.children.start("worker", "benchmarks.load.scripted_worker", {**orders, **sampled})
        path.children.start(
            "manager", "seamlessflow.consumers.trajectories", environment=path.variables
        )
    gateway = {
        "SEAMLESSFLOW_GATEWAY__PORT": path.url.rpartition(":")[2],
        "SEAMLESSFLOW_GATEWAY__SECRET": SECRET,
        "SEAMLESSFLOW_GATEWAY__LINGER_MS": str(path.linger_ms),
    }
    path.children.start(
        "gateway", "seamlessflow.producers.gateway", environment={**path.variables, **gateway}
    )
    _await_answer(path)


def _published(path: WholePath, directory: Path, answer: str) -> bytes:
    """Announce a policy; return the answer's tokens."""
    make_tokenizer(directory)
    tokenizer = Tokenizer.load(directory)
    # With all thinking kept, the next user message extends the session, as tool messages do.
    renderer = RendererSettings("qwen3", thinking_retention="all")
    weights = PolicyWeights(
        policy=POLICY,
        version=0,
        step=0,
        directory=str(directory),
        manifest_sha256="",
        tokenizer_directory=str(directory),
        tokenizer_hash=rendering_hash(directory, renderer),
        renderer=renderer.to_json(),
        max_context=32_768,
        overrides=Sampling(),
        at_ms=now_ms(),
    )
    producer = Producer(path.kafka, "benchmark")
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    producer.close()
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    return pack([*tokenizer.encode(answer), end])


def _await_answer(path: WholePath) -> None:
    """Wait until a first turn is answered."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    asked = {"model": POLICY, "messages": [{"role": "user", "content": "key 0"}]}
    while True:
        path.children.check()
        try:
            # So many sessions reach every partition: all of the new topics then have a leader.
            *_, key = path.opened(2 * REQUESTS.partitions)
            headers = {"authorization": f"Bearer {key}"}
            calls = f"{path.url}/v1/chat/completions"
            httpx.post(calls, headers=headers, json=asked).raise_for_status()
            return
        except (httpx.HTTPError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
