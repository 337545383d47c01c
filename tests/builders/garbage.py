"""Garbage on topics, and the dead letters that became of it."""

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Topic

NEWER = b"\xc3\x01" + bytes(range(8)) + b"body"
"""A record of a newer release."""
_TIMEOUT_S = 120
_GARBAGE = (b"", b"garbage", b"\xc3\x01cut", bytes(range(256)))


def litter(kafka: KafkaSettings, topic: Topic, partition: int, damaged: Record) -> list[int]:
    """Append values, keys and headers that no release writes; return the offsets of the garbage.

    `damaged` is a record that belongs on the topic. Last comes the garbage, so that no record
    follows it.
    """
    producer, offsets = Producer(kafka, "litter"), list[int]()
    whole = encode(damaged)

    def note(_: object, offset: int) -> None:
        offsets.append(offset)

    for value in (*_GARBAGE, whole[:-1], whole + b"\0"):
        headers = [("traceparent", b"\xff"), ("tracestate", None)]
        producer.send_bytes(topic.name, value, b"\xff", partition, headers, note)  # type: ignore[arg-type]
    producer.send_bytes(topic.name, whole, b"\xff\xfe", partition, None, note)
    producer.flush(_TIMEOUT_S)
    producer.close()
    return sorted(offsets)


def append_newer(kafka: KafkaSettings, topic: Topic, partition: int) -> int:
    """Append a record of a newer release; return its offset."""
    return append(kafka, topic, partition, NEWER)


def append(kafka: KafkaSettings, topic: Topic, partition: int, value: bytes) -> int:
    """Append a value; return its offset."""
    producer, offsets = Producer(kafka, "append"), list[int]()
    producer.send_bytes(
        topic.name, value, b"key", partition, None, lambda _, offset: offsets.append(offset)
    )
    producer.close()
    return offsets[0]


def buried(kafka: KafkaSettings, topic: Topic, partition: int) -> list[int]:
    """Return the offsets of the garbage that the dead letters have, in their order."""
    letters = read_partitions(kafka, [(topic.dead_letters, partition)])
    return [int(dict(letter.headers)["source-offset"]) for letter in letters]
