"""Trajectory manager without a log, which answers every command at once.

Reads its orders as JSON from standard input. `benchmarks/gateway.py --manager scripted` starts it
as a process, to profile the gateway.
"""

import json
import sys
import threading
from dataclasses import dataclass

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.process import run_sync
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import CommandAnswered, Record, ReplyFinished, RequestTurn
from seamlessflow.schemas.topics import REPLIES, REQUESTS


@dataclass(frozen=True)
class Orders:
    """The broker's address, and the answer to every turn."""

    bootstrap_servers: str
    message: str
    linger_ms: float


def serve(orders: Orders, stop: threading.Event) -> None:
    """Answer commands until `stop` is set."""
    kafka = KafkaSettings(bootstrap_servers=orders.bootstrap_servers)
    producer = Producer(kafka, "scripted-manager", linger_ms=orders.linger_ms)
    reader = Reader(kafka, "scripted-manager")
    reader.assign({(REQUESTS.name, n): 0 for n in range(REQUESTS.partitions)})
    message = orders.message.encode()
    while not stop.is_set():
        for item in reader.poll(0.2):
            fields = vars(item.record)
            address = fields["reply"]
            if address is not None:
                reply = _reply(item.record, address.gateway, message)
                producer.send(REPLIES.name, reply, partition=address.partition)
    producer.close()
    reader.close()


def _reply(command: Record, gateway: str, message: bytes) -> Record:
    if isinstance(command, RequestTurn):
        return ReplyFinished(
            gateway=gateway,
            session_id=command.session_id,
            turn_id=command.turn_id,
            message=message,
            finish_reason="stop",
            prompt_tokens=10,
            completion_tokens=2,
            version=0,
        )
    fields = vars(command)
    return CommandAnswered(
        gateway=gateway, session_id=fields["session_id"], command_id=fields["command_id"]
    )


if __name__ == "__main__":
    received = Orders(**json.load(sys.stdin))
    run_sync(lambda stop: serve(received, stop))
