"""The command line on a real broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import NothingRecorded
from seamlessflow.schemas.topics import (
    CONTROL,
    FLEET,
    REQUESTS,
    SESSIONS,
    TASKS,
    TOPICS,
    TRAJECTORIES,
    Topic,
)
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.records.tasks import task
from tests.builders.traces import session_history
from tests.builders.trajectories.session_builder import SessionBuilder
from tests.waiting import until

LIMIT_S = 120
HEAVY = "torch transformers renderers confluent_kafka openai matplotlib pydantic"


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Yield the broker, which the environment names for the command line."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    return kafka


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def created(cluster: KafkaSettings, topics: Iterable[Topic]) -> None:
    """Create topics and wait until the broker's metadata lists them."""
    names = set(create_topics(cluster, topics))
    until(lambda: names <= set(partition_counts(cluster)), "the topics", LIMIT_S)


def test_help_answers_without_anything_heavy() -> None:
    program = f"""
import sys
from seamlessflow.__main__ import app
try:
    app(["--help"])
except SystemExit:
    pass
sys.exit(" ".join(sorted(set({HEAVY!r}.split()) & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "\n")
    assert "doctor" in done.stdout


def test_topics_are_created_once_and_then_as_they_should_be(cluster: KafkaSettings) -> None:
    assert "seamlessflow topics create" in run("topics", "list").output
    missing = run("topics", "check")
    assert missing.exit_code == 1
    assert f"{cluster.topic_prefix}sessions.dlq: missing" in missing.output
    assert run("topics", "create").output.count("created") == 2 * len(TOPICS)
    assert run("topics", "create").output == "all topics exist\n"
    assert run("topics", "check").exit_code == 0


def test_a_topic_that_cannot_go_with_the_others_is_found(cluster: KafkaSettings) -> None:
    created(cluster, [replace(TASKS, partitions=3), replace(CONTROL, partitions=2)])
    checked = run("topics", "check").output
    assert f"{cluster.topic_prefix}control: 2 partitions, not 1" in checked
    assert "tasks: 3" not in checked
    failed = run("topics", "create")
    assert failed.exit_code == 1
    assert "control has 2 partitions" in str(failed.exception)


def test_the_list_shows_the_lag_of_the_group_that_is_set(
    cluster: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(cluster, [TASKS])
    producer = Producer(cluster, "test")
    producer.send(TASKS.name, task(issued_at_ms=0), key="one", partition=3)
    producer.close()
    reader = Reader(cluster, "test", group="mine")
    reader.commit({(TASKS.name, 3): (1, "")})
    reader.close()
    for group, lag in (("mine", "0"), ("agents", "1")):
        monkeypatch.setenv("SEAMLESSFLOW_AGENTS__GROUP", group)
        [row] = [
            line for line in run("topics", "list").output.splitlines() if line.startswith("│ tasks")
        ]
        assert [cell.strip() for cell in row.strip("│").split("│")][-2:] == [group, lag]


def test_the_list_shows_the_offsets_that_are_kept_and_the_lag(cluster: KafkaSettings) -> None:
    created(cluster, [TASKS, CONTROL])
    producer = Producer(cluster, "test")
    for number in range(3):
        record = task(issued_at_ms=number)
        producer.send(TASKS.name, record, key="one")
    producer.close()
    removed = TopicPartition(
        f"{cluster.topic_prefix}tasks", partition_of("one", TASKS.partitions), 1
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_records([removed])[removed].result(LIMIT_S)
    listed = run("topics", "list")
    assert listed.exception is None, listed.exception
    [row] = [line for line in listed.output.splitlines() if line.startswith("│ tasks")]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "tasks",
        "16",
        "2",
        "",
        "agents",
        "2",
    ]


def a_session(cluster: KafkaSettings) -> None:
    """Write a finished session and others to the log."""
    created(cluster, [SESSIONS, TRAJECTORIES, FLEET])
    events: list[Any] = [
        sessions.opened(),
        sessions.started(),
        sessions.dispatched(),
        sessions.completed(ids(3, 4, 5)),
        sessions.rewarded(0.5),
        sessions.closed(),
        sessions.finalized(),
    ]
    built = SessionBuilder().apply(*events)
    producer = Producer(cluster, "test")
    for event in events:
        producer.send(SESSIONS.name, event, key=sessions.SESSION)
        for other in range(100):
            name = f"other-{other}"
            producer.send(SESSIONS.name, replace(event, session_id=name), key=name)
    producer.send(TRAJECTORIES.name, trajectory(built.session, 0), key="group")
    producer.close()


def test_a_session_is_shown_from_the_log(cluster: KafkaSettings) -> None:
    created(cluster, TOPICS.values())
    a_session(cluster)
    said = run("show", sessions.SESSION).output
    assert "turn a, 3 tokens, version 0, stop, mean log-prob -0.250, trained" in said
    assert "3 4 5" in said
    [row] = [line.split() for line in run("show").output.splitlines() if "complete" in line]
    assert row == [sessions.SESSION, "complete", "0.5", "1", "5", "3", "0"]


def test_a_session_is_traced_from_the_log(cluster: KafkaSettings) -> None:
    created(cluster, TOPICS.values())
    producer = Producer(cluster, "test")
    for topic, record in session_history.trained():
        key = session_history.ID if topic in (SESSIONS.name, REQUESTS.name) else None
        headers = session_history.TRACED if topic == SESSIONS.name else None
        producer.send(topic, record, key=key, headers=headers)
    producer.close(LIMIT_S)
    said = run("trace", session_history.ID).output
    assert f"{session_history.ID}  trained in step 5, which made version 5" in said
    for name in ("group g", "task", "turn 1", "dispatch #1 on w", "weights published"):
        assert name in said
    assert f"trace {session_history.TRACE}" in said
    trace = json.loads(run("trace", session_history.ID, "--json").output)
    assert [entry["name"] for entry in trace["whole"]][-3:] == [
        "step 5",
        "committed",
        "weights published",
    ]
    assert "no session nobody" in str(run("trace", "nobody").exception)


def test_the_timeline_of_a_cluster_is_drawn_once_or_followed(
    cluster: KafkaSettings, tmp_path: Path
) -> None:
    created(cluster, [CONTROL])
    records = [control.joined("w", at_ms=0), control.completed(at_ms=9)]
    producer = Producer(cluster, "test")
    for record in records:
        producer.send(CONTROL.name, record)
    producer.close(LIMIT_S)
    once, followed = tmp_path / "once.html", tmp_path / "followed.html"

    assert run("timeline", "--to", str(once)).output.strip() == str(once)
    command = [sys.executable, "-m", "seamlessflow", "timeline", "--follow", "--to", str(followed)]
    with subprocess.Popen(command) as following:
        until(followed.exists, "the page", LIMIT_S)
        going_on = followed.read_text()
        following.send_signal(signal.SIGINT)

    assert following.returncode == 0
    assert going_on != once.read_text(), "a page that is followed loads itself again"
    assert followed.read_text() == once.read_text()


def test_a_session_that_is_not_there_is_told(cluster: KafkaSettings) -> None:
    a_session(cluster)
    failed = run("show", "nobody")
    assert "no session nobody" in str(failed.exception)


def test_a_directory_without_a_run_is_told(tmp_path: Path) -> None:
    assert "holds no run" in str(run("show", "x", "--out", str(tmp_path)).exception)


@pytest.mark.parametrize("command", ["show x", "audit", "timeline", "export --to data"])
def test_a_run_that_ended_before_its_first_record_has_nothing_to_show(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(tmp_path / "kafka", java=SHORT_LIVED):
        pass
    failed = run(*command.split(), "--out", str(tmp_path)).exception
    assert str(failed) == f"nothing was recorded in {tmp_path}: its run ended while it started"
    assert isinstance(failed, NothingRecorded)
    assert failed.process_status(ready=False) is ExitStatus.LASTING


def test_a_session_is_shown_from_kept_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        a_session(broker.settings)
    assert "turn a, 3 tokens" in run("show", sessions.SESSION, "--out", str(tmp_path)).output


def test_the_doctor_finds_the_broker(cluster: KafkaSettings, tmp_path: Path) -> None:
    said = run("doctor", "--out", str(tmp_path)).output
    assert f"✓ broker {cluster.bootstrap_servers}" in said
    assert "✓ Java openjdk" in said


def test_the_doctor_says_what_to_do_about_a_model_that_is_none(tmp_path: Path) -> None:
    done = run("doctor", "--out", str(tmp_path), "--model", str(tmp_path))
    assert done.exit_code == 1
    assert "lacks config.json, tokenizer.json, model.safetensors" in done.output
    assert "→ name a Hugging Face model directory" in done.output


def test_a_broker_that_is_away_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    done = run("doctor", "--out", str(tmp_path))
    assert done.exit_code == 1
    assert "✗ broker 127.0.0.1:1" in done.output
