"""Kafka clients: an unreadable record is neither lost nor stops a reader."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from infra.errors import DeliveryFailed
from infra.kafka.client import BEGINNING, Received
from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.topics import create_topics
from infra.settings import KafkaSettings
from schemas.codec import UndecodableRecord, decode, encode
from schemas.records import Record, WorkerLost
from schemas.topics import Topic
from tests.builders.letters import Letter
from tests.builders.records import control

DEADLINE_S = 20.0
TOPIC = Topic("lost", 2, 60_000, (WorkerLost,))
DEAD = f"{TOPIC.name}.dlq"
CUT = encode(control.lost())[:-3]
FOREIGN = b"no record of ours"


@pytest.fixture
def producer(kafka: KafkaSettings) -> Iterator[Producer]:
    create_topics(kafka, [TOPIC])
    made = Producer(kafka, "writer")
    yield made
    made.close()


@contextmanager
def reading(
    kafka: KafkaSettings,
    topic: str,
    dead_letters: Producer | None,
    decode: Callable[[bytes], Record] = decode,
) -> Iterator[Reader]:
    reader = Reader(kafka, "reader", dead_letters=dead_letters, decode=decode)
    reader.assign({(topic, number): BEGINNING for number in range(TOPIC.partitions)})
    yield reader
    reader.close()


def polled(reader: Reader, enough: Callable[[list[Received]], bool]) -> list[Received]:
    found: list[Received] = []
    deadline = time.monotonic() + DEADLINE_S
    while not enough(found):
        assert time.monotonic() < deadline, found
        found += reader.poll(0.2)
    return found


def test_what_cannot_be_decoded_goes_to_the_dead_letters_and_reading_goes_on(
    kafka: KafkaSettings, producer: Producer
) -> None:
    producer.send(TOPIC.name, control.lost(epoch=1), partition=1)
    producer.send_bytes(TOPIC.name, CUT, "some key", 1)
    producer.send_bytes(TOPIC.name, FOREIGN, None, 1)
    producer.send(TOPIC.name, control.lost(epoch=2), partition=1)

    with reading(kafka, TOPIC.name, producer) as reader:
        found = polled(reader, lambda found: len(found) == 2)

    assert [item.record for item in found] == [control.lost(epoch=1), control.lost(epoch=2)]
    assert [item.offset for item in found] == [0, 3]
    with reading(kafka, DEAD, None, Letter) as dead:
        (cut, why_cut), (foreign, why_foreign) = map(
            buried, polled(dead, lambda found: len(found) == 2)
        )
    assert (cut, foreign) == (CUT, FOREIGN)
    assert "EOFError" in why_cut.pop("error")
    assert "no schema" in why_foreign.pop("error")
    assert why_cut == {"source-topic": "lost", "source-partition": "1", "source-offset": "1"}
    assert why_foreign == {"source-topic": "lost", "source-partition": "1", "source-offset": "2"}


def buried(letter: Received) -> tuple[bytes, dict[str, str]]:
    assert isinstance(letter.record, Letter)
    return letter.record.data, {name: text.decode() for name, text in letter.headers}


def test_a_reader_without_dead_letters_says_where_it_stopped(
    kafka: KafkaSettings, producer: Producer
) -> None:
    producer.send_bytes(TOPIC.name, FOREIGN, None, 0)
    with (
        reading(kafka, TOPIC.name, None) as reader,
        pytest.raises(UndecodableRecord, match=r"lost\[0\]@0: no schema"),
    ):
        polled(reader, bool)


def test_a_record_that_was_not_written_is_told_to_whoever_asked(producer: Producer) -> None:
    failures: list[DeliveryFailed | None] = []
    too_large = b"x" * (TOPIC.max_record_bytes + 1)
    producer.send_bytes(TOPIC.name, too_large, None, 0, None, lambda e, _: failures.append(e))
    producer.flush(DEADLINE_S)
    assert [type(failure) for failure in failures] == [DeliveryFailed]


def test_a_lost_record_that_nobody_asked_about_fails_the_next_call(kafka: KafkaSettings) -> None:
    create_topics(kafka, [TOPIC])
    producer = Producer(kafka, "writer")
    producer.send_bytes(TOPIC.name, b"x" * (TOPIC.max_record_bytes + 1), None, 0)
    with pytest.raises(DeliveryFailed, match="lost"):
        producer.close()
