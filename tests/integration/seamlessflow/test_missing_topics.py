"""Commands on a cluster without topics: each names the missing topics and the remedy."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.demo.model import make_model
from seamlessflow.infra.errors import ExitStatus, TopicMissing
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.processes import PROCESSES, settings

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


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_ends_with_what_is_missing(
    process: str, kafka: KafkaSettings, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    make_model(tmp_path / "model", 0)

    done = subprocess.run(
        [sys.executable, "-m", process],
        env=os.environ | settings(kafka, tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == ExitStatus.LASTING
    assert "seamlessflow topics create" in done.stderr.splitlines()[-1]
    assert "no Kafka broker answered" not in done.stderr
