"""A console on a real Kafka: it follows, goes back in time, and writes nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.console.log.follower import Follower
from seamlessflow.console.log.lookup import RawDecoder, RecordLookup
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.views.now import now_page
from seamlessflow.console.web.console import AskedPage, Console, ShownRun, plain
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TASKS
from tests.builders.garbage import litter
from tests.builders.own_topics import small
from tests.builders.records import control, sessions, tasks
from tests.waiting import until

TOPICS = small(CONTROL, FLEET, SESSIONS, TASKS)
WAIT_S = 120.0


class Open:
    """A console that reads a Kafka."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.lookup = RecordLookup(kafka)
        self.run_log = RunLog(self.lookup, RawDecoder(kafka))
        self.changes = 0
        self.follower = Follower(kafka, self.run_log, self._changed)
        self.pages = Console(self.run_log, lambda: self.follower.following, ShownRun("the run"))

    def has(self, records: int) -> None:
        """Wait until so many records are read."""
        until(lambda: self.run_log.index.records >= records, f"{records} records")
        assert self.run_log.index.records == records

    def page(self, name: str, place: str = "", **query: str) -> object:
        """Return the JSON of a page."""
        return plain(self.pages.page(AskedPage(name, query, place))[1])

    def _changed(self) -> None:
        self.changes += 1


@contextmanager
def opened(kafka: KafkaSettings) -> Iterator[Open]:
    console = Open(kafka)
    console.follower.start()
    try:
        yield console
    finally:
        console.follower.close()
        console.lookup.close()


@pytest.fixture
def producer(kafka: KafkaSettings) -> Iterator[Producer]:
    create_topics(kafka, TOPICS)
    made = Producer(kafka, "test")
    yield made
    made.close()


def append(producer: Producer, topic: str, *records: Record, partition: int = 0) -> None:
    for record in records:
        producer.send_bytes(topic, encode(record), b"key", partition, None)
    producer.flush(WAIT_S)


def test_it_reads_what_is_there_and_then_what_comes(
    kafka: KafkaSettings, producer: Producer
) -> None:
    append(producer, "control", control.claimed(), control.joined("w"))
    with opened(kafka) as console:
        console.has(2)
        until(lambda: console.follower.following.whole, "the end of the log")
        before = console.changes
        append(producer, "control", control.joined("v"))
        append(producer, "sessions", sessions.claimed(), sessions.opened(), partition=1)
        console.has(5)
        assert console.changes > before
        page = now_page(console.run_log.picture(None))
        assert [worker.worker for worker in page.workers] == ["v", "w"]
        assert page.sessions_open == 1


def test_it_goes_back_in_time_by_reading_again(kafka: KafkaSettings, producer: Producer) -> None:
    with opened(kafka) as console:
        seen = []
        for number in range(600):
            append_later = control.joined(f"w{number % 7}", epoch=1, at_ms=number)
            producer.send_bytes("control", encode(append_later), None, 0, None)
        producer.flush(WAIT_S)
        console.has(600)
        for offset in (0, 1, 255, 256, 299, 599, 3, 298):
            moment = Moment("control", 0, offset)
            first = plain(now_page(console.run_log.picture(moment)))
            assert plain(now_page(console.run_log.picture(moment))) == first
            seen.append((offset, console.run_log.picture(moment).control.records))
        assert seen == [(offset, offset + 1) for offset, _ in seen]


def test_records_that_are_far_apart_are_read_again_by_their_places(
    kafka: KafkaSettings, producer: Producer
) -> None:
    append(producer, "control", *(control.joined(f"w{number}") for number in range(500)))
    append(producer, "tasks", tasks.task(), partition=3)
    with opened(kafka) as console:
        console.has(501)
        places = [(("control", 0), 499), (("tasks", 3), 0), (("control", 0), 3)]
        items = console.run_log.records(places)
        assert [(item.topic, item.offset) for item in items] == [
            ("control", 499),
            ("tasks", 0),
            ("control", 3),
        ]
        line = console.page("record", "control:3")
        assert {"name": "worker", "text": "w3", "left_out": 0} in line["fields"]  # type: ignore[index]


def test_a_jump_and_a_long_range_have_the_same_records(
    kafka: KafkaSettings, producer: Producer
) -> None:
    append(producer, "tasks", *(tasks.task(task_id=f"t-{number}") for number in range(3_000)))
    lookup, place = RecordLookup(kafka), ("tasks", 0)
    whole = lookup.ranges({place: (0, 3_000)})[place]
    assert [item.offset for item in whole] == list(range(3_000))
    assert lookup.ranges({place: (1_490, 1_510)})[place] == whole[1_490:1_510]
    lookup.close()


def test_garbage_is_shown_and_nothing_is_written(kafka: KafkaSettings, producer: Producer) -> None:
    append(producer, "sessions", sessions.claimed(), partition=2)
    offsets = litter(kafka, SESSIONS, 2, sessions.opened())
    append(producer, "sessions", sessions.opened(), partition=2)
    with opened(kafka) as console:
        console.has(2 + len(offsets))
        page = console.page("records", topic="sessions")
        readable = [line["readable"] for line in page["lines"]]  # type: ignore[index]
        assert readable.count(False) == len(offsets) - 1  # of one the key alone is garbage
        assert now_page(console.run_log.picture(None)).sessions_open == 1
    bounds = BoundsLookup(kafka)
    letters = [(SESSIONS.dead_letters, number) for number in range(TOPICS[2].partitions)]
    ends = bounds.ends(letters, WAIT_S)
    bounds.close()
    assert set(ends.values()) == {0}


def test_topics_that_are_made_later_are_read_too(kafka: KafkaSettings) -> None:
    create_topics(kafka, small(FLEET))
    with opened(kafka) as console:
        until(lambda: console.follower.following.whole, "the end of the log")
        create_topics(kafka, small(CONTROL))
        producer = Producer(kafka, "test")
        append(producer, "control", control.claimed())
        producer.close()
        console.has(1)


def test_it_outlasts_a_kafka_that_is_away(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        assert broker.pid is not None
        kafka = broker.settings
        create_topics(kafka, small(CONTROL))
        producer = Producer(kafka, "test")
        append(producer, "control", control.claimed(), control.joined("w"))
        pid = broker.pid
        with opened(kafka) as console:
            console.has(2)
            os.kill(pid, signal.SIGSTOP)
            try:
                until(lambda: bool(console.follower.following.away), "the outage")
                assert "no Kafka broker answered" in console.follower.following.away
                assert now_page(console.run_log.picture(None)).workers[0].worker == "w"
                frame, _ = console.pages.page(AskedPage("now", {}))
                assert frame.away_since_ms > 0
                producer.send_bytes("control", encode(control.joined("v")), None, 0, None)
            finally:
                os.kill(pid, signal.SIGCONT)
            console.has(3)
            until(lambda: not console.follower.following.away, "the end of the outage")
        producer.close()
