"""A topic is read to where it ended, whatever stands there, and however slow the broker is."""

import os
import signal
import threading
import time
from pathlib import Path

from confluent_kafka import Producer as ConfluentProducer

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_partitions, read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.records import control
from tests.waiting import until

TOPIC = Topic("trajectories", 2, 60_000, (WorkerLost,))
SILENT_S = 4.0
MANY, BRIEF_S = 1_200, 3.0
"""Records of several polls, and a silence that is shorter than the caller's work between them, yet
longer than a broker on a busy machine takes for an answer."""
LIMIT_S = 120


def epochs(kafka: KafkaSettings) -> list[int]:
    """Return the epochs of the records that a reading finds, by partition."""
    items = list(read_topic(kafka, TOPIC, Skipped()))
    return [
        item.record.epoch
        for item in sorted(items, key=lambda item: (item.partition, item.offset))
        if isinstance(item.record, WorkerLost)
    ]


def transactional(kafka: KafkaSettings, name: str) -> ConfluentProducer:
    options = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "transactional.id": kafka.topic_prefix + name,
    }
    producer = ConfluentProducer(options)
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    return producer


def test_only_what_is_committed_is_read_up_to_the_first_open_transaction(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [TOPIC])
    name = kafka.topic_prefix + TOPIC.name

    def write(producer: ConfluentProducer, epoch: int, partition: int) -> None:
        producer.produce(name, encode(control.lost(epoch=epoch)), partition=partition)
        producer.flush(LIMIT_S)

    first, aborted, last = (
        transactional(kafka, identifier) for identifier in ("first", "aborted", "last")
    )
    write(first, 1, 0)
    first.commit_transaction(LIMIT_S)
    write(aborted, 2, 0)
    write(aborted, 3, 1)
    aborted.abort_transaction(LIMIT_S)
    assert epochs(kafka) == [1]
    first.begin_transaction()
    write(first, 4, 0)
    write(last, 5, 0)
    write(last, 6, 1)
    last.commit_transaction(LIMIT_S)
    assert epochs(kafka) == [1, 6]
    first.commit_transaction(LIMIT_S)
    assert epochs(kafka) == [1, 4, 5, 6]


def test_a_broker_that_is_silent_for_seconds_does_not_cut_a_reading_short(tmp_path: Path) -> None:
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        assert broker.pid is not None
        create_topics(broker.settings, [TOPIC])
        producer = Producer(broker.settings, "writer")
        for epoch in range(50):
            large = control.lost(epoch=epoch, reason="x" * 100_000)
            producer.send(TOPIC.name, large, partition=0)
        producer.close()
        # So little is read ahead that most records are still at the broker after the first.
        small = {"queued.max.messages.kbytes": 100, "fetch.message.max.bytes": 100_000}
        kafka = broker.settings.model_copy(update={"options": small})
        reading = read_topic(kafka, TOPIC, Skipped())
        items = [next(reading)]
        os.kill(broker.pid, signal.SIGSTOP)
        again = threading.Timer(SILENT_S, os.kill, (broker.pid, signal.SIGCONT))
        again.start()
        items += reading
        again.join()
    assert [item.offset for item in items] == list(range(50))


def test_the_time_that_a_caller_takes_is_no_silence_of_the_topic(kafka: KafkaSettings) -> None:
    create_topics(kafka, [TOPIC])
    producer = Producer(kafka, "test")
    for epoch in range(MANY):
        producer.send(TOPIC.name, control.lost(epoch=epoch), partition=0)
    producer.close()
    count, busy_until_s = 0, 0.0

    def done() -> bool:
        return time.monotonic() > busy_until_s

    place = (TOPIC.name, 0)
    for item in read_partitions(kafka, [place], ends={place: MANY}, limit_s=BRIEF_S):
        count += 1
        if item.offset % (MANY // 2) == 0:
            busy_until_s = time.monotonic() + 1.2 * BRIEF_S
            until(done, "the caller's work")
    assert count == MANY
