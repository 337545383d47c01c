"""Kafka clients that librdkafka left without a broker, for all partitions or for one."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import DeliveryFailed, KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING, client_options
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.records import control
from tests.waiting import until

TOPIC = Topic("lost", 1, 60_000, (WorkerLost,))
FLUSH_S = 30
NOWHERE = f"{HOST}:9"
"""A port that no program listens on."""
NO_BROKER = json.dumps({"brokers": {"GroupCoordinator": {"source": "logical"}}})


def strand(reader: Reader) -> None:
    """Show the reader the statistics of a client without brokers."""
    for _ in range(2):
        reader.watch.note(NO_BROKER)


def test_a_reader_goes_on_with_another_client_behind_what_it_delivered(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [TOPIC])
    producer, reader = Producer(kafka, "writer"), Reader(kafka, "reader")
    read: list[object] = []

    def arrived(count: int) -> bool:
        read.extend(item.record for item in reader.poll(0.1))
        return len(read) >= count

    sent = [control.lost(reason=reason) for reason in ("first", "second")]
    try:
        reader.assign({(TOPIC.name, 0): BEGINNING})
        producer.send(TOPIC.name, sent[0])
        until(lambda: arrived(1), "the first")
        strand(reader)
        producer.send(TOPIC.name, sent[1])
        until(lambda: arrived(2), "the second")
        assert read == sent
    finally:
        reader.close()
        producer.close()


def test_ends_and_commits_are_asked_of_another_client_before_the_first_poll(
    kafka: KafkaSettings,
) -> None:
    """Without a poll nothing says that a client has lost all brokers; this one never had any."""
    create_topics(kafka, [TOPIC])
    place = (TOPIC.name, 0)
    producer = Producer(kafka, "writer")
    producer.send(TOPIC.name, control.lost(reason="any"))
    producer.close()
    options: dict[str, Any] = {"bootstrap.servers": NOWHERE}
    other, reader = Reader(kafka, "same"), Reader(kafka, "same", **options)
    try:
        other.assign({place: BEGINNING})
        other.commit({place: (1, "mine")})
        assert reader.ends([place], FLUSH_S) == {place: 1}
        assert reader.committed([place], FLUSH_S) == {place: (1, "mine")}
    finally:
        other.close()
        reader.close()


def test_a_member_of_a_group_ends_its_process(kafka: KafkaSettings) -> None:
    create_topics(kafka, [TOPIC])
    reader = Reader(kafka, "reader")
    try:
        reader.subscribe([TOPIC.name])
        strand(reader)
        with pytest.raises(KafkaUnavailable, match="lost all brokers"):
            reader.poll(0.1)
    finally:
        reader.close()


def test_a_member_of_a_group_whose_commit_has_no_answer_ends_its_process(tmp_path: Path) -> None:
    """librdkafka may wait for ever, and its client does nothing else meanwhile."""
    place, assigned = (TOPIC.name, 0), threading.Event()
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        assert broker.pid is not None
        create_topics(broker.settings, [TOPIC])
        reader = Reader(broker.settings, "reader")
        reader.subscribe([TOPIC.name], on_assigned=lambda _: assigned.set())
        until(lambda: bool(reader.poll(0.1)) or assigned.is_set(), "the partition")
        reader.commit({place: (0, "before")})
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(KafkaUnavailable, match="no answer within 1 s"):
                reader.commit({place: (0, "in between")}, 1)
            with pytest.raises(KafkaUnavailable, match="the call before has no answer yet"):
                reader.commit({place: (0, "behind it")})
            with pytest.raises(KafkaUnavailable, match="lost all brokers"):
                reader.poll(0.1)
            reader.close()
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_a_client_that_got_an_answer_asks_about_its_partitions_again_in_seconds(
    kafka: KafkaSettings,
) -> None:
    """A partition without a broker is found again only then; a new one is found just so."""
    create_topics(kafka, [TOPIC])
    producer = Producer(kafka, "writer")

    def sent(partition: int) -> bool:
        try:
            producer.send(TOPIC.name, control.lost(reason="any"), partition=partition)
        except DeliveryFailed:
            return False
        return True

    try:
        until(lambda: sent(0), "the first partition")
        producer.flush(FLUSH_S)
        name = kafka.topic_prefix + TOPIC.name
        admin = AdminClient(client_options(kafka))
        admin.create_partitions([NewPartitions(name, 2)])[name].result(FLUSH_S)
        until(lambda: sent(1), "the second partition")
    finally:
        producer.close()
