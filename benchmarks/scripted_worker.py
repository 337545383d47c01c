"""A rollout worker without an engine: answers every prompt at once with the same tokens.

Announces itself on `control` and `fleet` as docs/architecture.md says, then reads its slot. Reads
its orders as JSON from standard input. A process of its own, started by `benchmarks/gateway.py`.
"""

import base64
import json
import sys
import threading
import time
from dataclasses import dataclass

from infra.kafka import Producer, Reader
from infra.process import run_sync
from infra.settings import KafkaSettings
from schemas.records import (
    GenerateTurn,
    RoleAcquired,
    TurnCompleted,
    VersionSpan,
    WorkerHeartbeat,
)
from schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, fleet_key

_WORKER, _INCARNATION, _SLOT, _VERSION = "bench", "bench-1", 0, 0
_HEARTBEAT_S = 1.0


@dataclass(frozen=True)
class Orders:
    """The broker, and the answer to everything."""

    bootstrap_servers: str
    policy: str
    token_ids: str
    message: str
    linger_ms: float


def serve(orders: Orders, stop: threading.Event) -> None:
    """Serves until stopped."""
    kafka = KafkaSettings(bootstrap_servers=orders.bootstrap_servers)
    producer = Producer(kafka, "scripted-worker", linger_ms=orders.linger_ms)
    reader = Reader(kafka, "scripted-worker")
    place = (PROMPTS.name, _SLOT)
    offset = reader.ends([place])[place]
    reader.assign({place: offset})
    _announce(producer, offset)
    ids = base64.b64decode(orders.token_ids)
    message = orders.message.encode()
    next_heartbeat = 0.0
    while not stop.is_set():
        if time.monotonic() >= next_heartbeat:
            next_heartbeat = time.monotonic() + _HEARTBEAT_S
            _beat(producer, orders.policy)
        for item in reader.poll(0.2):
            if isinstance(item.record, GenerateTurn):
                event = _completed(item.record, ids, message)
                producer.send(SESSIONS.name, event, key=event.session_id)
    producer.close()
    reader.close()


def _announce(producer: Producer, offset: int) -> None:
    acquired = RoleAcquired(
        at_ms=_now_ms(),
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
        at_ms=_now_ms(),
    )
    producer.send(FLEET.name, heartbeat, key=fleet_key(heartbeat))


def _completed(turn: GenerateTurn, ids: bytes, message: bytes) -> TurnCompleted:
    return TurnCompleted(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        dispatch=turn.dispatch,
        worker=_WORKER,
        incarnation=_INCARNATION,
        token_offset=len(turn.completion_ids) // 4,
        token_ids=ids,
        logprobs=bytes(len(ids)),
        spans=(VersionSpan(start=0, version_min=_VERSION, version_max=_VERSION),),
        at_ms=_now_ms(),
        finish_reason="stop",
        message=message,
        well_formed=True,
        prompt_length=len(turn.prompt_ids) // 4,
        prompt_hash=turn.prompt_hash,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    told = Orders(**json.load(sys.stdin))
    run_sync(lambda stop: serve(told, stop))
