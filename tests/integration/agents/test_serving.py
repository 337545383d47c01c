"""Heartbeats that the agents process reads from `fleet`."""

import queue

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.serving import watch_engines
from seamlessflow.schemas.records import Record, WorkerHeartbeat
from seamlessflow.schemas.topics import FLEET, fleet_key
from tests.builders.records.fleet import gateway, heartbeat

LIMIT_S = 120


def test_heartbeats_of_rollout_processes_are_read_and_nothing_else(kafka: KafkaSettings) -> None:
    create_topics(kafka, [FLEET])
    producer = Producer(kafka, "workers")

    def send(record: Record) -> None:
        producer.send(FLEET.name, record, key=fleet_key(record))

    heartbeats = queue.SimpleQueue[Record]()
    failures: list[BaseException] = []

    def note(records: list[Record]) -> None:
        for record in records:
            heartbeats.put(record)

    send(heartbeat(worker="w0", state="starting"))
    producer.flush(LIMIT_S)
    watch = watch_engines(kafka, "agents", note, failures.append)
    try:
        assert heartbeats.get(timeout=LIMIT_S) == heartbeat(worker="w0", state="starting")
        send(heartbeat(worker="w0", process="train", state="training"))
        send(gateway())
        send(heartbeat(worker="w1", state="ready"))
        producer.flush(LIMIT_S)
        last = heartbeats.get(timeout=LIMIT_S)
        assert isinstance(last, WorkerHeartbeat)
        assert (last.worker, last.state) == ("w1", "ready")
    finally:
        watch.close()
        producer.close()
    assert failures == []
