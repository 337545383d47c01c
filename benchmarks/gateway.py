"""Latency and throughput of a call through all processes, and the CPU time that each takes.

    python -m benchmarks gateway [--levels 1,32,256] [--seconds 5] [--warm-up 20]
                                 [--manager real|scripted] [--calls plain|streamed|scored]

Embedded Kafka, gateway, trajectory manager, a worker that answers at once and a load generator run
on this machine. A session has eight turns that extend each other. The time of a call is the time
that the system adds to sampling. With `--manager scripted` only the gateway is real. Load runs for
`--warm-up` seconds before the first level: a broker that has just started takes at least twice the
CPU.

The answer to a `streamed` call is 70 tokens in 20 chunks; `first_` figures are of its first bytes.
The answer to a `scored` call is 200 tokens with their log-probs.
"""

import argparse
import base64
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load.children import Children
from benchmarks.load.measured_load import open_sessions, run_load
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

_POLICY = "policy"
_SECRET = "secret of the benchmark"
_CHUNKS = 20
_TURNS = 8
_WARM_UP_S = 1.0
_WARM_UP_LEVEL = 64
_READY_TIMEOUT_S = 60
_SESSIONS = {1: 400}
_MOST_SESSIONS = 3000


def _codes(number: int) -> str:
    return " ".join(f"code {n}" for n in range(number))


@dataclass(frozen=True)
class Calls:
    """Kind of calls: their answer, which is always the same, and parameters of the request."""

    answer: str
    more: Mapping[str, object] = field(default_factory=dict)


_CALLS = {
    "plain": Calls("code 3"),
    "streamed": Calls(_codes(_CHUNKS), {"stream": True}),
    "scored": Calls(_codes(53), {"logprobs": True}),
}


@dataclass(frozen=True)
class RunningSystem:
    """Processes of the benchmark and their addresses."""

    children: Children
    kafka: KafkaSettings
    broker_pid: int
    url: str
    linger_ms: float
    calls: Calls

    def pids(self) -> Mapping[str, int]:
        return {**self.children.pids(), "broker": self.broker_pid}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks gateway", description=__doc__)
    parser.add_argument("--levels", default="1,32,256", help="calls at once, with commas")
    parser.add_argument("--seconds", type=float, default=5, help="measured time of a level")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds of load before all")
    parser.add_argument("--manager", choices=("real", "scripted"), default="real")
    parser.add_argument("--linger-ms", type=float, default=0, help="of gateway and worker")
    parser.add_argument("--calls", choices=_CALLS, default="plain")
    asked = parser.parse_args(argv)
    figures: dict[str, object] = {
        "manager": asked.manager,
        "linger_ms": asked.linger_ms,
        "calls": asked.calls,
    }
    with (
        tempfile.TemporaryDirectory() as scratch,
        Broker(None) as broker,
        Children() as children,
    ):
        assert broker.pid is not None
        url = f"http://127.0.0.1:{free_port()}"
        calls = _CALLS[asked.calls]
        system = RunningSystem(children, broker.settings, broker.pid, url, asked.linger_ms, calls)
        create_topics(system.kafka, TOPICS.values())
        _start(system, Path(scratch), asked.manager)
        if asked.warm_up:
            _measured(system, _WARM_UP_LEVEL, asked.warm_up)
        for level in map(int, asked.levels.split(",")):
            figures |= _measured(system, level, asked.seconds)
    print(json.dumps(figures))


def _start(system: RunningSystem, scratch: Path, manager: str) -> None:
    servers = {"bootstrap_servers": system.kafka.bootstrap_servers, "linger_ms": system.linger_ms}
    content = system.calls.answer
    message = json.dumps({"content": content, "role": "assistant"}, separators=(",", ":"))
    variables = {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": system.kafka.bootstrap_servers}
    if manager == "scripted":
        orders = {**servers, "message": message}
        system.children.start("manager", "benchmarks.load.scripted_manager", orders)
    else:
        ids = _published(system, scratch)
        orders = {
            **servers,
            "message": message,
            "policy": _POLICY,
            "token_ids": base64.b64encode(ids).decode(),
            "chunks": _CHUNKS,
        }
        system.children.start("worker", "benchmarks.load.scripted_worker", orders)
        system.children.start(
            "manager", "seamlessflow.consumers.trajectories", environment=variables
        )
    gateway = {
        "SEAMLESSFLOW_GATEWAY__PORT": system.url.rpartition(":")[2],
        "SEAMLESSFLOW_GATEWAY__SECRET": _SECRET,
        "SEAMLESSFLOW_GATEWAY__LINGER_MS": str(system.linger_ms),
    }
    system.children.start(
        "gateway", "seamlessflow.producers.gateway", environment={**variables, **gateway}
    )
    _await_answer(system)


def _published(system: RunningSystem, directory: Path) -> bytes:
    """Announce a policy; return the tokens of the answer."""
    make_tokenizer(directory)
    tokenizer = Tokenizer.load(directory)
    # With all thinking kept, the next user message extends the session, as tool messages do.
    renderer = RendererSettings("qwen3", thinking_retention="all")
    weights = PolicyWeights(
        policy=_POLICY,
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
    producer = Producer(system.kafka, "benchmark")
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    producer.close()
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    return pack([*tokenizer.encode(system.calls.answer), end])


def _await_answer(system: RunningSystem) -> None:
    """Wait until a first turn is answered."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while True:
        system.children.check()
        try:
            # So many sessions reach every partition: all of the new topics then have a leader.
            *_, key = _opened(system, 2 * REQUESTS.partitions)
            headers = {"authorization": f"Bearer {key}"}
            path = f"{system.url}/v1/chat/completions"
            httpx.post(path, headers=headers, content=_bodies(system.calls)[0]).raise_for_status()
            return
        except (httpx.HTTPError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _measured(system: RunningSystem, connections: int, seconds: float) -> dict[str, object]:
    sessions = _SESSIONS.get(connections, _MOST_SESSIONS)
    place = httpx.URL(system.url)
    orders = {
        "host": place.host,
        "port": place.port,
        "connections": connections,
        "warm_up_s": _WARM_UP_S,
        "seconds": seconds,
        "tokens": _opened(system, sessions),
        "bodies": _bodies(system.calls),
    }
    pids = {name: pid for name, pid in system.pids().items() if name != "load"}
    result, used = run_load(system.children, orders, pids)
    return _named(result, used, connections)


def _named(
    result: Mapping[str, Any], used: Mapping[str, float], connections: int
) -> dict[str, object]:
    """Return the figures of one level under their public names."""
    count = max(result["requests"], 1)
    cpu = {f"{name}_cpu_us": round(1e6 * seconds / count, 1) for name, seconds in used.items()}
    cpu["client_cpu_us"] = result["client_cpu_us"]
    figures = {
        "added_p50_ms": result["p50_ms"],
        "added_p99_ms": result["p99_ms"],
        "requests_per_s": result["requests_per_s"],
        "requests": result["requests"],
        "failures": result["failures"],
        **cpu,
    }
    if result["first_p50_ms"] is not None:
        figures |= {name: result[name] for name in ("first_p50_ms", "first_p99_ms")}
    if result["failure"]:
        figures["failure"] = result["failure"]
    return {f"{name}_c{connections}": figure for name, figure in figures.items()}


def _opened(system: RunningSystem, number: int) -> list[str]:
    """Open sessions; return their keys."""
    return open_sessions(system.url, _SECRET, _POLICY, number)


def _bodies(calls: Calls) -> list[str]:
    """Return the bodies of a session's calls, each with the history of those before."""
    messages: list[dict[str, str]] = []
    bodies = []
    for turn in range(_TURNS):
        messages.append({"role": "user", "content": f"key {turn}, and say which code it has"})
        asked = {"model": "policy", "messages": messages, "temperature": 1.0, **calls.more}
        bodies.append(json.dumps(asked))
        messages.append({"role": "assistant", "content": calls.answer})
    return bodies
