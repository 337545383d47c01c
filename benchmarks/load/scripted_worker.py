"""Rollout worker without an engine, which answers every prompt at once with the same tokens.

Reads its orders as JSON from standard input, announces itself on `control` and `fleet`, then reads
its slot. The answer to a streamed turn is `chunks` records. Benchmarks start it as a process.
"""

import base64
import json
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from struct import pack
from typing import Any, TypeVar

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import (
    GenerateTurn,
    RoleAcquired,
    TurnCompleted,
    TurnProgressed,
    VersionSpan,
    WorkerHeartbeat,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, fleet_key

_WORKER, _INCARNATION, _SLOT, _VERSION = "bench", "bench-1", 0, 0
_HEARTBEAT_S = 1.0
Sliced = TypeVar("Sliced", str, bytes)


@dataclass(frozen=True)
class Orders:
    """The broker's address, and the answer to every prompt."""

    bootstrap_servers: str
    policy: str
    token_ids: str
    message: str
    linger_ms: float
    chunks: int = 1


def serve(orders: Orders, stop: threading.Event) -> None:
    """Answer prompts until `stop` is set."""
    kafka = KafkaSettings(bootstrap_servers=orders.bootstrap_servers)
    producer = Producer(kafka, "scripted-worker", linger_ms=orders.linger_ms, report_every_s=1)
    reader = Reader(kafka, "scripted-worker")
    place = (PROMPTS.name, _SLOT)
    offset = reader.ends([place])[place]
    reader.assign({place: offset})
    _announce(producer, offset)
    ids = base64.b64decode(orders.token_ids)
    next_heartbeat = 0.0
    while not stop.is_set():
        if time.monotonic() >= next_heartbeat:
            next_heartbeat = time.monotonic() + _HEARTBEAT_S
            _beat(producer, orders.policy)
        for item in reader.poll(0.2):
            if isinstance(item.record, GenerateTurn):
                for event in _events(item.record, ids, orders):
                    producer.send(SESSIONS.name, event, key=item.record.session_id)
    producer.close()
    reader.close()


def _announce(producer: Producer, offset: int) -> None:
    acquired = RoleAcquired(
        at_ms=now_ms(),
        worker=_WORKER,
        incarnation=_INCARNATION,
        role="rollout",
        assignment=0,
        slot=_SLOT,
        slot_offset=offset,
        version=_VERSION,
        took_ms=0,
    )
    producer.send(CONTROL.name, acquired)


def _beat(producer: Producer, policy: str) -> None:
    heartbeat = WorkerHeartbeat(
        worker=_WORKER,
        incarnation=_INCARNATION,
        process="rollout",
        tags=("rollout",),
        role="rollout",
        assignment=0,
        slot=_SLOT,
        state="ready",
        version=_VERSION,
        policy=policy,
        capacity=4096,
        at_ms=now_ms(),
    )
    producer.send(FLEET.name, heartbeat, key=fleet_key(heartbeat))


def _events(turn: GenerateTurn, ids: bytes, orders: Orders) -> list[TurnProgressed | TurnCompleted]:
    if not turn.stream:
        return [_completed(turn, ids, 0, orders, None)]
    content = json.loads(orders.message)["content"]
    *parts, last = zip(
        _cut(ids, orders.chunks, TOKEN_BYTES), _cut(content, orders.chunks, 1), strict=True
    )
    events: list[TurnProgressed | TurnCompleted] = []
    offset = 0
    for some, text in parts:
        events.append(TurnProgressed(**_sampled(turn, some, offset), delta=_delta(text)))
        offset += len(some) // TOKEN_BYTES
    return [*events, _completed(turn, last[0], offset, orders, _delta(last[1]))]


def _cut(whole: Sliced, parts: int, unit: int) -> list[Sliced]:
    """Cut into `parts` with about equal lengths, each a multiple of `unit`."""
    units = len(whole) // unit
    ends = [unit * (units * n // parts) for n in range(parts)] + [len(whole)]
    return [whole[start:end] for start, end in pairwise(ends)]


def _delta(text: str) -> bytes:
    return json.dumps({"content": text}, separators=(",", ":")).encode()


def _sampled(turn: GenerateTurn, ids: bytes, offset: int) -> dict[str, Any]:
    """Return the fields that both kinds of output share."""
    return {
        "session_id": turn.session_id,
        "turn_id": turn.turn_id,
        "dispatch": turn.dispatch,
        "worker": _WORKER,
        "incarnation": _INCARNATION,
        "token_offset": offset,
        "token_ids": ids,
        "logprobs": pack("<f", -0.7310585) * (len(ids) // TOKEN_BYTES),
        "spans": (VersionSpan(start=offset, version_min=_VERSION, version_max=_VERSION),),
        "at_ms": now_ms(),
    }


def _completed(
    turn: GenerateTurn, ids: bytes, offset: int, orders: Orders, delta: bytes | None
) -> TurnCompleted:
    return TurnCompleted(
        **_sampled(turn, ids, offset),
        delta=delta,
        finish_reason="stop",
        message=orders.message.encode(),
        well_formed=True,
        prompt_length=len(turn.prompt_ids) // TOKEN_BYTES,
        prompt_hash=turn.prompt_hash,
    )


if __name__ == "__main__":
    received = Orders(**json.load(sys.stdin))
    run_sync(lambda stop: serve(received, stop))
