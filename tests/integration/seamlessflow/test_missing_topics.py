"""Commands on a cluster without topics: each names the missing topics and the remedy."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from infra.errors import TopicMissing
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.kafka.topics import create_topics
from infra.settings import KafkaSettings
from schemas.records import WorkerLost
from schemas.topics import Topic

SOON_S = 15.0
TOPIC = Topic("late", 2, 60_000, (WorkerLost,))
PLACE = (TOPIC.name, 1)


@pytest.fixture
def reader(kafka: KafkaSettings) -> Iterator[Reader]:
    made = Reader(kafka, "reader")
    yield made
    made.close()


def test_a_missing_topic_is_named_with_the_remedy(kafka: KafkaSettings, reader: Reader) -> None:
    began = time.monotonic()
    with pytest.raises(TopicMissing) as missing:
        reader.ends([PLACE])
    assert time.monotonic() - began < SOON_S
    assert str(missing.value) == (
        f"topic {kafka.topic_prefix}late is missing at {kafka.bootstrap_servers}; "
        "run: seamlessflow topics create"
    )


def test_a_topic_that_is_made_meanwhile_is_waited_for(kafka: KafkaSettings, reader: Reader) -> None:
    making = threading.Timer(0.5, create_topics, (kafka, [TOPIC]))
    making.start()
    assert reader.ends([PLACE]) == {PLACE: 0}
    making.join()


def test_who_asks_a_reading_thread_gets_the_error_and_the_thread_goes_on(
    kafka: KafkaSettings,
) -> None:
    failures: list[BaseException] = []
    thread = ReaderThread("reading", Reader(kafka, "reader"), lambda _: None, failures.append)
    thread.start()
    with pytest.raises(TopicMissing):
        thread.ask(lambda reader: reader.ends([PLACE]))
    create_topics(kafka, [TOPIC])
    assert thread.ask(lambda reader: reader.ends([PLACE])) == {PLACE: 0}
    thread.close()
    assert failures == []


@pytest.mark.parametrize("process", ["producers.gateway", "scheduler"])
def test_a_process_ends_with_what_is_missing(
    process: str, kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__PORT", "0")
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__SECRET", "0123456789abcdef0123456789abcdef")

    done = subprocess.run(
        [sys.executable, "-m", process], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "seamlessflow topics create" in done.stderr.splitlines()[-1]
    assert "no Kafka broker answered" not in done.stderr
