"""The page Compare and its JSON, of a run on a real Kafka, by the command's own server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, SESSIONS
from tests.builders.console.course import STEPS, course_items
from tests.builders.console.masked_session import MASKED, masked_items
from tests.builders.own_topics import small
from tests.waiting import until

LIMIT_S = 120


@pytest.fixture
def filled(kafka: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield a Kafka with the steps of a run, and a session."""
    create_topics(kafka, small(CONTROL, SESSIONS))
    producer = Producer(kafka, "test")
    for item in (*course_items(), *masked_items()):
        assert isinstance(item.record, Raw)
        key = None if item.record.key is None else item.record.key.decode()
        producer.send_bytes(item.topic, item.record.value, key, item.partition, None)
    producer.flush(LIMIT_S)
    producer.close()
    yield kafka


@contextmanager
def client_of(kafka: KafkaSettings, records: int) -> Iterator[httpx.Client]:
    """Yield a client of a console that has read so many records."""
    command = [sys.executable, "-m", "seamlessflow", "console", "--port", "0"]
    environment: Mapping[str, str] = os.environ | {
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("the console is at ").strip()
            with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
                until(lambda: _records(client) == records, f"{records} records")
                yield client
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()


def _records(client: httpx.Client) -> int:
    return int(client.get("/records.json").json()["frame"]["records"])


def page(client: httpx.Client, **query: str) -> Any:
    """Return the JSON of a comparison, whose page is there also."""
    answer = client.get("/compare", params=query, headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return client.get("/compare.json", params=query).json()["page"]


def test_moments_and_rules_are_compared_by_records_read_again(filled: KafkaSettings) -> None:
    with client_of(filled, len(course_items()) + len(masked_items())) as client:
        shown = page(client, **{"with": "control:100"})["moments"]
        assert shown["after"]["done"] == STEPS > shown["before"]["done"]
        assert shown["starts"][-1]["settings"] == {"trainer.max_staleness": "2 -> 4"}
        rules = page(client, session="s", train_inexact="1", siblings="all")["rules"]
        more = [effect["trained_more"] for effect in rules["effects"]]
        assert more == [MASKED["inexact_top_p"], MASKED["abandoned"], sum(more[:2])]
        missing = client.get("/compare", params={"session": "nobody"})
        assert missing.status_code == 404


def test_a_moment_that_is_not_there_is_named(filled: KafkaSettings) -> None:
    with client_of(filled, len(course_items()) + len(masked_items())) as client:
        answer = client.get("/compare.json", params={"with": "control:99999"})
        assert answer.status_code == 404
        assert "with=control:99999" in answer.json()["error"]
