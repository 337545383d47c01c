"""A console beside real consumer groups and a real audit, and the pages that show them."""

import signal

import httpx
import pytest

from seamlessflow.console.log.index import KIND_NUMBERS, IndexRow, LogIndex
from seamlessflow.console.log.lag_watch import LagWatch
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES
from tests.builders.console.commands import running
from tests.builders.own_topics import small
from tests.builders.records import control
from tests.waiting import until

LIMIT_S = 120
GROUP = "managers"


@pytest.fixture
def cluster(kafka: KafkaSettings) -> KafkaSettings:
    create_topics(kafka, small(CONTROL, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES))
    return kafka


def index_of(topic: str, offsets: int) -> LogIndex:
    index = LogIndex()
    kind = KIND_NUMBERS["SessionOpened"]
    rows = [IndexRow(offset, 0, kind, None, 1) for offset in range(offsets)]
    index.append({(topic, 0): rows})
    return index


def test_the_lag_of_a_group_is_what_it_has_not_committed(cluster: KafkaSettings) -> None:
    reader = Reader(cluster, "test", group=GROUP)
    reader.commit({(REQUESTS.name, 0): (3, "")})
    index = index_of(REQUESTS.name, 10)
    watch = LagWatch(cluster, {REQUESTS.name: GROUP, SESSIONS.name: "nobody"}, index)
    watch.start()
    try:
        until(lambda: len(watch.state()) == 1, "the group that exists", LIMIT_S)
        (reading,) = watch.state()
        assert (reading.name, reading.topic, reading.lag) == (GROUP, REQUESTS.name, 7)
        assert [line.owner for line in reading.partitions] == [""]
    finally:
        watch.close()
        reader.close()


def test_the_badge_turns_when_the_log_breaks_a_promise(cluster: KafkaSettings) -> None:
    producer = Producer(cluster, "test")
    producer.send(CONTROL.name, control.joined("w"), partition=0)
    with (
        running(cluster, "--audit") as (url, process),
        httpx.Client(base_url=url, timeout=LIMIT_S) as client,
    ):
        until(lambda: "audit: clean" in client.get("/now").text, "a clean audit", LIMIT_S)
        twice = control.committed(0, ["g", "g"])
        producer.send(CONTROL.name, twice, partition=0)
        producer.flush(LIMIT_S)
        until(lambda: "violations</a>" in client.get("/now").text, "the violation", LIMIT_S)
        page = client.get("/now.json").json()["page"]
        assert {line["moment"] for line in page["audit"]["lines"]} == {"control:0:1"}
        until(lambda: client.get("/record/control:0:1").status_code == 200, "its record", LIMIT_S)
        assert client.get("/now.json?at=control:0").json()["page"]["audit"] is None
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    producer.close()
