"""CPU and latency that a rollout process adds to its engine, for each turn.

    python -m benchmarks rollout_worker [--turns 4000] [--prompt 512] [--tokens 16]

The worker has the scripted engine, which answers at once. `floor` is a process that answers the
same records from a loop without engine, parser or state (`load/scripted_worker.py`). The difference
between the two medians is the time that the worker adds.
"""

import argparse
import json
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.load.children import Children, cpu_s
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.tokens import pack
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, fleet_key

_PARTITION = 3
_POLICY = "policy"
_CONCURRENCY = (1, 32, 256)
_DEADLINE_S = 120.0
R = TypeVar("R", bound=r.Record)


@dataclass(frozen=True)
class Target:
    """A worker that prompts are sent to."""

    worker: str
    incarnation: str
    slot: int
    pid: int


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks rollout_worker", description=__doc__)
    parser.add_argument("--turns", type=int, default=4_000, help="at each concurrency")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt, about")
    parser.add_argument("--tokens", type=int, default=16, help="tokens of an answer")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch, Broker(None) as broker, Children() as children:
        kafka = broker.settings
        create_topics(kafka, [PROMPTS, SESSIONS, CONTROL, FLEET])
        tokenizer = Path(scratch, "tokenizer")
        make_tokenizer(tokenizer)
        floor = start_floor(children, kafka, asked.tokens)
        worker = start_worker(children, kafka, tokenizer, asked.tokens)
        prompt = rendered(tokenizer, asked.prompt)
        figures = {
            name: [drive(kafka, target, count, asked.turns, prompt) for count in _CONCURRENCY]
            for name, target in (("floor", floor), ("worker", worker))
        }
        children.check()
    print(json.dumps({"benchmark": "rollout_worker", **figures}))


def start_floor(children: Children, kafka: KafkaSettings, tokens: int) -> Target:
    """Start the process that only answers."""
    orders = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "policy": _POLICY,
        "token_ids": b64encode(pack([7] * tokens)).decode(),
        "message": '{"content":"ok","role":"assistant"}',
        "linger_ms": 0,
    }
    process = children.start("floor", "benchmarks.load.scripted_worker", orders)
    acquired = first(kafka, CONTROL.name, r.RoleAcquired, "bench")
    return Target("bench", acquired.incarnation, 0, process.pid)


def start_worker(children: Children, kafka: KafkaSettings, tokenizer: Path, tokens: int) -> Target:
    """Start a real rollout process and assign its role."""
    scripted = {"text": "The answer is 42. ", "tokens": tokens - 1}
    section = {"worker": "w", "policy": _POLICY, "engine": "scripted", "capacity": "1024"}
    environment = {f"SEAMLESSFLOW_ROLLOUT__{key.upper()}": value for key, value in section.items()}
    environment["SEAMLESSFLOW_ROLLOUT__SCRIPTED"] = json.dumps(scripted)
    environment["SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS"] = kafka.bootstrap_servers
    producer = Producer(kafka, "benchmark-scheduler")
    weights = policy_weights(tokenizer)
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    process = children.start("worker", "seamlessflow.producers.rollout", environment=environment)
    beat = first(kafka, FLEET.name, r.WorkerHeartbeat, "w")
    producer.send(CONTROL.name, assignment(beat.incarnation), partition=0)
    first(kafka, CONTROL.name, r.RoleAcquired, "w")
    producer.close()
    return Target("w", beat.incarnation, 1, process.pid)


def policy_weights(tokenizer: Path) -> r.PolicyWeights:
    """Return a version without weights: the scripted engine reads none."""
    return r.PolicyWeights(
        policy=_POLICY,
        version=0,
        step=0,
        directory="none",
        manifest_sha256="none",
        tokenizer_directory=str(tokenizer),
        tokenizer_hash="",
        renderer=RendererSettings("qwen3").to_json(),
        max_context=65_536,
        overrides=Sampling(),
        at_ms=0,
    )


def assignment(incarnation: str) -> r.RoleAssigned:
    """Return an assignment of the rollout role on slot 1."""
    return r.RoleAssigned(
        epoch=1,
        at_ms=0,
        assignment=1,
        worker="w",
        incarnation=incarnation,
        role="rollout",
        slot=1,
        reason="benchmark",
        deadline_ms=2**62,
    )


def first(kafka: KafkaSettings, topic: str, kind: type[R], worker: str) -> R:
    """Wait for a worker's first record on a topic. Raises `TimeoutError`."""
    reader = Reader(kafka, "benchmark-wait")
    reader.assign({(topic, 0): BEGINNING})
    deadline = time.monotonic() + _DEADLINE_S
    try:
        while time.monotonic() < deadline:
            for item in reader.poll(0.1):
                if isinstance(item.record, kind) and getattr(item.record, "worker", "") == worker:
                    return item.record
    finally:
        reader.close()
    raise TimeoutError(f"no {kind.__name__} of {worker} within {_DEADLINE_S:g} s")


def rendered(tokenizer: Path, tokens: int) -> bytes:
    """Return a chat's tokens, about `tokens` of them."""
    renderer = Renderer.load(tokenizer, RendererSettings("qwen3"))
    word = len(renderer.encode("key 7 ")) // 4
    return renderer.render([{"role": "user", "content": "key 7 " * (tokens // word)}])


def drive(
    kafka: KafkaSettings, target: Target, concurrency: int, turns: int, prompt: bytes
) -> dict[str, float]:
    """Keep `concurrency` turns under way; a tenth more come first, to warm up."""
    producer, reader = Producer(kafka, "benchmark-manager"), Reader(kafka, "benchmark-log")
    reader.assign(reader.ends([(SESSIONS.name, number) for number in range(SESSIONS.partitions)]))
    sent: dict[str, float] = {}
    latencies: list[float] = []
    warm = turns // 10
    started = spent = 0.0

    def send(number: int) -> None:
        turn_id = f"{target.worker}-{concurrency}-{number}"
        sent[turn_id] = time.perf_counter()
        producer.send(PROMPTS.name, turn(target, turn_id, prompt), partition=target.slot)

    for number in range(concurrency):
        send(number)
    done, number = 0, concurrency
    while done < turns + warm:
        for item in reader.poll(1):
            if isinstance(item.record, r.TurnCompleted):
                latencies.append(time.perf_counter() - sent.pop(item.record.turn_id))
                done += 1
                if done == warm:
                    started, spent = time.perf_counter(), cpu_s(target.pid)
                if number < turns + warm:
                    send(number)
                    number += 1
    took = time.perf_counter() - started
    cpu_us = 1e6 * (cpu_s(target.pid) - spent) / turns
    producer.close()
    reader.close()
    return {
        "concurrency": concurrency,
        "p50_ms": round(1e3 * statistics.median(latencies[warm:]), 3),
        "turns_per_second": round(turns / took),
        "cpu_us_per_turn": round(cpu_us, 1),
    }


def turn(target: Target, turn_id: str, prompt: bytes) -> r.GenerateTurn:
    """Return a turn to generate, not streamed."""
    return r.GenerateTurn(
        session_id=turn_id,
        turn_id=turn_id,
        dispatch=1,
        epoch=1,
        partition=_PARTITION,
        worker=target.worker,
        incarnation=target.incarnation,
        prompt_ids=prompt,
        prompt_hash=b"",
        completion_ids=b"",
        sampling=Sampling(max_tokens=1_000),
        stream=False,
        policy=_POLICY,
        deadline_ms=2**62,
    )
