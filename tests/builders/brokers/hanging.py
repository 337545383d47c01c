"""Transactions that hang: Kafka recorded their end and left the markers out.

Written as Kafka 4.3 writes it, so that no kill at an exact moment is needed.
"""

import struct

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as PlainProducer

from seamlessflow.infra.kafka.client import client_options
from seamlessflow.infra.kafka.transactions.hanging import read_states, transactional_id
from seamlessflow.infra.kafka.transactions.verdicts import TOPIC, IdState, StateRecord
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import REQUESTS, TRAJECTORIES

MEMBER = "hanging"
GROUP = "managers"
PARTITION = 3
OFFSET = 5
_TIMEOUT_MS = 60_000
"""Longest that the embedded broker allows: until then Kafka leaves the transaction as it is."""
_INTERNAL_WRITER = "__admin_client"
"""Client id from which brokers take records of their internal topics."""


def leave_hanging(kafka: KafkaSettings, decided: IdState) -> None:
    """Leave a transaction of a manager with a record and an offset, whose end only Kafka's record
    has.
    """
    leave_open(kafka)
    name = kafka.topic_prefix + transactional_id(MEMBER)
    newest = [
        record for record in read_states(kafka, lambda: False) if record.transactional_id == name
    ][-1]
    done = {
        IdState.PREPARE_COMMIT: IdState.COMPLETE_COMMIT,
        IdState.PREPARE_ABORT: IdState.COMPLETE_ABORT,
    }
    prepared = StateRecord(name, newest.producer_id, decided, newest.partitions)
    ended = StateRecord(name, newest.producer_id, done[decided], frozenset())
    writer = PlainProducer({**client_options(kafka), "client.id": _INTERNAL_WRITER})
    count = len(writer.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions)
    for state in (prepared, ended):
        writer.produce(TOPIC, value(state), key(name), partition=partition_of_id(name, count))
        assert writer.flush(60) == 0


def leave_open(kafka: KafkaSettings) -> None:
    """Leave a transaction that its producer, which is gone, did not end."""
    settings = {
        "transactional.id": kafka.topic_prefix + transactional_id(MEMBER),
        "transaction.timeout.ms": _TIMEOUT_MS,
    }
    producer = PlainProducer({**client_options(kafka), **settings})
    producer.init_transactions(30)
    reader = Consumer({**client_options(kafka), "group.id": kafka.topic_prefix + GROUP})
    offset = TopicPartition(kafka.topic_prefix + REQUESTS.name, PARTITION, OFFSET, "progress")
    producer.begin_transaction()
    producer.produce(kafka.topic_prefix + TRAJECTORIES.name, b"a trajectory", partition=PARTITION)
    producer.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), 10)
    assert producer.flush(60) == 0
    reader.close()


def key(name: str) -> bytes:
    """Return a key of the topic, version 0."""
    return struct.pack(f">hh{len(name)}s", 0, len(name), name.encode())


def value(state: StateRecord) -> bytes:
    """Return a value of the topic, version 0."""
    content = struct.pack(">hqhib", 0, state.producer_id, 0, 5_000, state.state)
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(state.partitions):
        topics.setdefault(topic, []).append(number)
    content += struct.pack(">i", len(topics))
    for topic, numbers in topics.items():
        content += struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
        content += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return content + struct.pack(">qq", 0, 0)


def partition_of_id(name: str, count: int) -> int:
    """Return the partition of an id: Java's hash of the text, without its sign."""
    hashed = 0
    for character in name:
        hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return abs(signed) % count
