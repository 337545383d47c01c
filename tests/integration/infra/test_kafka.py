"""Kafka clients: an unreadable record is neither lost nor stops a reader."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.errors import DeliveryFailed, NewerRelease, QueueFull
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.dead_letters import DeadLetters, send_letter
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Letter as Garbage
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import Record, WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.records import control
from tests.waiting import until

DEADLINE_S = 120.0
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
    letters: DeadLetters | None,
    decode: Callable[[bytes], Record] = decode,
    folds: bool = False,
) -> Iterator[Reader]:
    bury = letters.bury if letters else None
    reader = Reader(kafka, "reader", rules=ReadingRules(bury=bury, decode=decode, folds=folds))
    reader.assign({(topic, number): BEGINNING for number in range(TOPIC.partitions)})
    yield reader
    reader.close()


def polled(reader: Reader, enough: Callable[[list[Received]], bool]) -> list[Received]:
    items: list[Received] = []
    deadline = time.monotonic() + DEADLINE_S
    while not enough(items):
        assert time.monotonic() < deadline, items
        items += reader.poll(0.2)
    return items


def test_what_cannot_be_decoded_goes_to_the_dead_letters_and_reading_goes_on(
    kafka: KafkaSettings, producer: Producer
) -> None:
    producer.send(TOPIC.name, control.lost(epoch=1), partition=1)
    producer.send_bytes(TOPIC.name, CUT, "some key", 1)
    producer.send_bytes(TOPIC.name, FOREIGN, None, 1)
    producer.send(TOPIC.name, control.lost(epoch=2), partition=1)

    with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
        received = polled(reader, lambda items: len(items) == 4)

    assert [type(item.record) for item in received] == [
        WorkerLost,
        Unreadable,
        Unreadable,
        WorkerLost,
    ]
    assert [item.offset for item in received] == [0, 1, 2, 3]
    with reading(kafka, DEAD, None, Raw) as dead:
        (cut, why_cut), (foreign, why_foreign) = map(
            letter_of, polled(dead, lambda items: len(items) == 2)
        )
    assert (cut, foreign) == (CUT, FOREIGN)
    assert "EOFError" in why_cut.pop("error")
    assert "no schema" in why_foreign.pop("error")
    assert why_cut == {"source-topic": "lost", "source-partition": "1", "source-offset": "1"}
    assert why_foreign == {"source-topic": "lost", "source-partition": "1", "source-offset": "2"}


def letter_of(letter: Received) -> tuple[bytes, dict[str, str]]:
    assert isinstance(letter.record, Raw)
    return letter.record.value, {name: text.decode() for name, text in letter.headers}


def test_garbage_that_is_read_again_is_not_buried_again(
    kafka: KafkaSettings, producer: Producer
) -> None:
    first = litter(kafka, TOPIC, 1, control.lost())
    for _ in range(2):
        with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
            polled(reader, lambda items: len(items) == len(first))
        producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 1) == first
    later = litter(kafka, TOPIC, 1, control.lost())
    with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
        polled(reader, lambda items: len(items) == len(first + later))
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 1) == first + later
    assert buried(kafka, TOPIC, 0) == []


def test_the_dead_letters_of_a_partition_are_read_once(
    kafka: KafkaSettings, producer: Producer
) -> None:
    garbage = litter(kafka, TOPIC, 0, control.lost())
    stop = threading.Event()
    letters = DeadLetters(kafka, producer, stop.is_set)
    with reading(kafka, TOPIC.name, letters) as reader:
        polled(reader, lambda items: len(items) == len(garbage))
        stop.set()  # from now on nothing can be read
        garbage += litter(kafka, TOPIC, 0, control.lost())
        polled(reader, lambda items: len(items) == len(garbage) // 2)
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 0) == garbage


def test_what_another_process_buried_meanwhile_is_known_when_the_partition_comes_back(
    kafka: KafkaSettings, producer: Producer
) -> None:
    owners = [DeadLetters(kafka, producer), DeadLetters(kafka, producer)]
    garbage: list[int] = []

    def bury_as(owner: DeadLetters) -> None:
        garbage.extend(litter(kafka, TOPIC, 0, control.lost()))
        owner.look_anew([(TOPIC.name, 0)])
        with reading(kafka, TOPIC.name, owner) as reader:
            polled(reader, lambda items: len(items) == len(garbage))
        producer.flush(DEADLINE_S)

    for owner in (*owners, owners[0]):
        bury_as(owner)
    assert buried(kafka, TOPIC, 0) == garbage


def test_a_foreign_record_among_the_dead_letters_does_not_matter(
    kafka: KafkaSettings, producer: Producer
) -> None:
    garbage = litter(kafka, TOPIC, 0, control.lost())
    for headers in (None, [("source-offset", b"\xff")]):
        producer.send_bytes(DEAD, FOREIGN, b"\xff", 0, headers)
    producer.flush(DEADLINE_S)
    with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
        polled(reader, lambda items: len(items) == len(garbage))
    producer.flush(DEADLINE_S)
    with reading(kafka, DEAD, None, Raw) as dead:
        polled(dead, lambda items: len(items) == len(garbage) + 2)


def test_garbage_ends_no_reader_where_it_cannot_be_buried(
    kafka: KafkaSettings, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([kafka.topic_prefix + DEAD])[kafka.topic_prefix + DEAD].result(DEADLINE_S)
    garbage = litter(kafka, TOPIC, 1, control.lost())
    producer.send(TOPIC.name, control.lost(), partition=1)
    with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
        received = polled(reader, lambda items: len(items) == len(garbage) + 1)
    assert isinstance(received[-1].record, WorkerLost)
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.getMessage().startswith("lost[1]@0 is not among the dead letters: topic ")
    assert "lost.dlq is missing" in error.getMessage()


def test_a_letter_that_kafka_refuses_fails_no_later_record(
    kafka: KafkaSettings, producer: Producer
) -> None:
    too_large = b"x" * (TOPIC.max_record_bytes + 1)
    send_letter(producer, Garbage(TOPIC.name, 0, 0, None, too_large, "too large"))
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 0) == []


def test_letters_that_are_held_are_written_at_their_release(
    kafka: KafkaSettings, producer: Producer
) -> None:
    garbage = litter(kafka, TOPIC, 0, control.lost())
    held = DeadLetters(kafka, producer, held=True)
    with reading(kafka, TOPIC.name, held) as reader:
        polled(reader, lambda items: len(items) == len(garbage))
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 0) == []
    held.release()
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 0) == garbage


def test_a_reader_that_folds_stops_at_a_record_of_a_newer_release_and_others_go_on(
    kafka: KafkaSettings, producer: Producer
) -> None:
    append_newer(kafka, TOPIC, 0)
    producer.send(TOPIC.name, control.lost(), partition=0)
    with (
        reading(kafka, TOPIC.name, DeadLetters(kafka, producer), folds=True) as folding,
        pytest.raises(NewerRelease, match=r"lost\[0\]@0 .*0001020304050607.* upgrade"),
    ):
        polled(folding, bool)
    with reading(kafka, TOPIC.name, DeadLetters(kafka, producer)) as reader:
        received = polled(reader, lambda items: len(items) == 2)
    assert [type(item.record) for item in received] == [Unreadable, WorkerLost]
    producer.flush(DEADLINE_S)
    assert buried(kafka, TOPIC, 0) == []


def test_a_reader_knows_how_far_it_is_behind(kafka: KafkaSettings, producer: Producer) -> None:
    written = 5_000
    for epoch in range(written):
        producer.send(TOPIC.name, control.lost(epoch=epoch), partition=1)
    producer.flush(DEADLINE_S)
    with reading(kafka, TOPIC.name, None) as reader:
        received = polled(reader, bool)
        assert reader.lags()[TOPIC.name, 1] == written - len(received)
        received += polled(reader, lambda items: len(items) == written - len(received))
        assert reader.lags()[TOPIC.name, 1] == 0


def test_a_paused_partition_goes_on_where_it_stood(
    kafka: KafkaSettings, producer: Producer
) -> None:
    written = 2_000
    with reading(kafka, TOPIC.name, None) as reader:
        for epoch in range(written):
            producer.send(TOPIC.name, control.lost(epoch=epoch), partition=1)
        producer.flush(DEADLINE_S)
        received = polled(reader, bool)
        reader.pause([(TOPIC.name, 1)], True)
        producer.send(TOPIC.name, control.lost(), partition=0)
        producer.flush(DEADLINE_S)
        others = polled(reader, bool)
        reader.pause([(TOPIC.name, 1)], False)
        received += polled(reader, lambda more: len(received) + len(more) == written)

    assert [item.partition for item in others] == [0]
    assert [item.offset for item in received] == list(range(written))


def test_a_reader_that_begins_behind_all_records_is_not_behind(
    kafka: KafkaSettings, producer: Producer
) -> None:
    for epoch in range(3):
        producer.send(TOPIC.name, control.lost(epoch=epoch), partition=1)
    producer.flush(DEADLINE_S)
    with closing(Reader(kafka, "test")) as reader:
        reader.assign({(TOPIC.name, 1): 3})
        until(lambda: bool(reader.lags()), "the lag", DEADLINE_S)
        assert reader.lags() == {(TOPIC.name, 1): 0}


def test_what_arrives_while_a_reader_does_not_poll_is_counted(
    kafka: KafkaSettings, producer: Producer
) -> None:
    producer.send(TOPIC.name, control.lost(epoch=0), partition=1)
    producer.flush(DEADLINE_S)
    with closing(Reader(kafka, "test")) as reader:
        reader.assign({(TOPIC.name, 1): BEGINNING})
        polled(reader, bool)
        for behind in (500, 1_000):
            for epoch in range(500):
                producer.send(TOPIC.name, control.lost(epoch=epoch), partition=1)
            producer.flush(DEADLINE_S)
            assert reader.lags() == {(TOPIC.name, 1): behind}


def test_a_reader_may_close_while_it_is_asked_for_its_lag(
    kafka: KafkaSettings, producer: Producer
) -> None:
    reader = Reader(kafka, "test")
    reader.assign({(TOPIC.name, 1): BEGINNING})
    until(lambda: bool(reader.lags()), "the lag", DEADLINE_S)
    with ThreadPoolExecutor() as asking:
        asked = [asking.submit(reader.lags) for _ in range(20)]
        reader.close()
        assert all(future.result(DEADLINE_S) in ({}, {(TOPIC.name, 1): 0}) for future in asked)
    assert reader.lags() == {}


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


def test_what_kafka_has_takes_no_room_of_a_queue_although_it_was_not_reported_yet(
    kafka: KafkaSettings,
) -> None:
    create_topics(kafka, [TOPIC])
    two_thirds = b"x" * 700_000
    queue: dict[str, Any] = {"queue.buffering.max.kbytes": 1_024}
    producer = Producer(kafka, "writer", report_every_s=10_000, waits_for_room=False, **queue)

    def sent() -> bool:
        try:
            producer.send_bytes(TOPIC.name, two_thirds, None, 0)
        except QueueFull:
            return False
        return True

    with closing(producer):
        assert sent()
        until(sent, "room for a second record")
        assert not all(sent() for _ in range(100))
