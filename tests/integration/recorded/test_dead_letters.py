"""The commands `seamlessflow dlq` on the real broker."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.dead_letters import DeadLetters, send_letter
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.topics import SESSIONS, TASKS
from tests.builders.records import sessions
from tests.builders.records.tasks import task

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Yield the broker with four dead letters, which the environment names."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    create_topics(kafka, [replace(TASKS, partitions=6), replace(SESSIONS, partitions=3)])
    producer = Producer(kafka, "test")
    wanted = encode(task(issued_at_ms=0, deadline_ms=now_ms() + 600_000))
    headers = [("traceparent", b"\xff")]
    send_letter(producer, Letter("tasks", 5, 40, "group", wanted, "a lost reader", headers))
    send_letter(producer, Letter("tasks", 5, 41, b"\xff", b"garbage", "no schema"))
    send_letter(producer, Letter("sessions", 2, 7, "s", encode(sessions.opened()), "ValueError()"))
    producer.send_bytes("tasks.dlq", b"foreign", b"\xff", 0)
    producer.close()
    return kafka


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["dlq", *arguments])


def test_a_letter_is_sent_once_with_its_key_and_headers(cluster: KafkaSettings) -> None:
    assert run("retry", "--all", "--dry-run").output.startswith("would send tasks[5]@40")
    refused = run("retry", "tasks", "5", "41")
    assert (refused.exit_code, "still cannot be decoded" in refused.output) == (1, True)

    assert run("retry", "tasks").output.startswith("sent tasks[5]@40 as offset 0")
    assert "1 retried before" in run("retry", "--all").output

    [sent] = read_partitions(cluster, [("tasks", 5)])
    assert (sent.key, sent.headers) == ("group", [("traceparent", b"\xff")])
    assert sent.record == task(issued_at_ms=0, deadline_ms=sent.record.deadline_ms)  # type: ignore[attr-defined]
    [row] = [line for line in run("list").output.splitlines() if "a lost reader" in line]
    assert row.split()[:3] == ["tasks", "1", "1"]
    assert "now at offset 0" in run("show", "tasks", "5", "40").output


def test_what_has_an_order_is_refused_and_garbage_needs_force(cluster: KafkaSettings) -> None:
    refused = run("retry", "sessions", "2", "7", "--force")
    assert (refused.exit_code, "the order of events" in refused.output) == (1, True)
    assert "sent tasks[5]@41" in run("retry", "tasks", "5", "41", "--force").output
    assert run("show", "tasks", "5", "99").exit_code == 1


def test_a_mark_is_no_garbage_and_hides_none(cluster: KafkaSettings) -> None:
    run("retry", "tasks")
    producer = Producer(cluster, "burying")
    buried = DeadLetters(cluster, producer)
    for offset in (41, 42):  # the first one is there
        buried.bury([Letter("tasks", 5, offset, None, b"late", "no schema")])
    producer.close()

    assert "5: 40" in run("list", "--topic", "tasks").output
    assert run("show", "tasks", "5", "42").output.count("late") == 1
    assert "late" not in run("show", "tasks", "5", "41").output
