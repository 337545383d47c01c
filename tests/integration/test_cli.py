"""The command line on a real broker."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from infra.kafka import Producer, create_topics
from infra.settings import KafkaSettings
from schemas.records import Task
from schemas.topics import CONTROL, TASKS, TOPICS
from seamlessflow.__main__ import app

HEAVY = "torch transformers renderers confluent_kafka openai matplotlib pydantic"


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """The broker, as the command line finds it."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    return kafka


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


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
    missing = run("topics", "check")
    assert missing.exit_code == 1
    assert f"{cluster.topic_prefix}sessions.dlq: missing" in missing.output
    assert run("topics", "create").output.count("created") == 2 * len(TOPICS)
    assert run("topics", "create").output == "all topics are there\n"
    assert run("topics", "check").exit_code == 0


def test_a_topic_with_another_partition_count_is_found(cluster: KafkaSettings) -> None:
    create_topics(cluster, [TASKS.__class__("tasks", 3, 1000, ())])
    assert "tasks: 3 partitions, not 16" in run("topics", "check").output
    failed = run("topics", "create")
    assert failed.exit_code == 1
    assert "tasks has 3 partitions" in str(failed.exception)


def test_the_list_tells_records_and_lag(cluster: KafkaSettings) -> None:
    create_topics(cluster, [TASKS, CONTROL])
    producer = Producer(cluster, "test")
    for number in range(3):
        task = Task(policy="p", payload=b"{}", issued_at_ms=number, deadline_ms=number)
        producer.send(TASKS.name, task, key="one")
    producer.close()
    [row] = [line for line in run("topics", "list").output.splitlines() if "tasks" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "tasks",
        "16",
        "3",
        "",
        "agents",
        "3",
    ]


def test_the_doctor_finds_the_broker(cluster: KafkaSettings, tmp_path: Path) -> None:
    said = run("doctor", "--out", str(tmp_path)).output
    assert f"✓ broker {cluster.bootstrap_servers}" in said
    assert "✓ Java openjdk" in said


def test_the_doctor_says_what_to_do_about_a_model_that_is_none(tmp_path: Path) -> None:
    done = run("doctor", "--out", str(tmp_path), "--model", str(tmp_path))
    assert done.exit_code == 1
    assert "config.json and tokenizer.json not there" in done.output
    assert "→ name a Hugging Face model directory" in done.output


def test_a_broker_that_is_away_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    done = run("doctor", "--out", str(tmp_path))
    assert done.exit_code == 1
    assert "✗ broker 127.0.0.1:1" in done.output
