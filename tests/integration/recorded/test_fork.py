"""Forks of recorded sessions, from a real broker into a file that the scheduler reads."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.tasks.file import source_of
from seamlessflow.scheduler.tasks.forks import fork_file
from seamlessflow.schemas.forks import history
from seamlessflow.schemas.topics import TASKS
from tests.builders.records.tasks import task
from tests.builders.trajectories.golden_topics import golden_log, write_golden

LOG = golden_log()
PAYLOAD = b'{"id":"t","key":7,"metadata":{"level":"2"}}'


@pytest.fixture
def log(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSettings]:
    """Yield a cluster with the topics of a finished run, which the environment names."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    write_golden(kafka, LOG)
    create_topics(kafka, [TASKS])
    producer = Producer(kafka, "tasks")
    producer.send(TASKS.name, task(task_id="t", group_id="g", payload=PAYLOAD), key="g")
    producer.close()
    yield kafka


def run(to: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "fork", "--to", str(to), *arguments])


def test_recorded_sessions_become_tasks_that_begin_behind_each_tool_result(
    log: KafkaSettings, tmp_path: Path
) -> None:
    path = tmp_path / "forks.jsonl"
    answer = run(path, "--after-tool-result", "every", "--samples", "4")
    assert answer.exit_code == 0, answer.output
    assert "wrote 6 forks of 3 sessions" in answer.output
    assert "opened without a task" in answer.output
    assert "of an evaluation (forks-by-ids)" in answer.output

    source = source_of(fork_file(path))
    places = {(row.fork.origin.session_id, row.task_id) for row in source.rows if row.fork}
    assert {session_id for session_id, _ in places} == {
        "chat-plain",
        "chat-streamed",
        "chat-lenient",
    }
    for row in source.rows:
        assert (row.payload, row.metadata, row.samples) == (PAYLOAD, {"level": "2"}, 4)
        assert row.fork is not None
        assert row.fork.origin.topic_prefix == log.topic_prefix
        assert orjson.loads(history(row.fork)[-1])["role"] == "tool"

    answer = run(path, "chat-plain", "--turn", "last", "--behind", "answer", "--append", "check it")
    assert answer.exit_code == 0, answer.output
    (row,) = fork_file(path)
    assert row.fork is not None
    assert orjson.loads(history(row.fork)[-1]) == {"role": "user", "content": "check it"}


def test_a_playback_says_that_tools_run_again(log: KafkaSettings, tmp_path: Path) -> None:
    path = tmp_path / "forks.jsonl"
    answer = run(path, "chat-plain", "--turn", "2", "--mode", "playback")
    assert answer.exit_code == 0, answer.output
    assert "get 1 recorded answers" in answer.output
    assert "their tools really run again" in answer.output
    (row,) = fork_file(path)
    assert row.fork is not None and row.fork.mode == "playback"


def test_a_file_in_no_directory_is_refused_before_sessions_are_read(tmp_path: Path) -> None:
    answer = run(tmp_path / "nodir" / "forks.jsonl", "--turn", "last")
    assert "--to: there is no directory" in str(answer.exception)


def test_without_a_place_no_file_is_written(log: KafkaSettings, tmp_path: Path) -> None:
    path = tmp_path / "forks.jsonl"
    answer = run(path, "chat-plain", "--turn", "9")
    assert answer.exit_code == 78
    assert "left out: 1 no such turn (chat-plain)" in answer.output
    assert not list(tmp_path.iterdir())

    unfinished = run(path, "chat-plain", "--turn", "1", "--behind", "answer", "--append", "x")
    assert "tool calls without a result (chat-plain, turn " in unfinished.output

    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "other"}')
    none = run(path, "--group", "other", "--turn", "1", "--task-file", str(tasks), "--json")
    assert orjson.loads(none.stdout)["forks"] == 0
    assert orjson.loads(none.stdout)["not_found"] == ["group other"]
