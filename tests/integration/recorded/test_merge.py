"""Recorded sessions merged again from a real broker."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastavro import reader
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.partitions import MergeJob, merge
from seamlessflow.recorded.select.reading import partition_bounds
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from tests.builders.own_topics import SMALL
from tests.builders.trajectories.golden_topics import golden_log, write_golden

LOG = golden_log()


def recorded() -> dict[str, Trajectory]:
    records = [decode(record.value) for record in LOG[TRAJECTORIES.name]]
    return {record.session_id: record for record in records if isinstance(record, Trajectory)}


@pytest.fixture
def log(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSettings]:
    """Yield a cluster with the topics of a finished run, which the environment names."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    write_golden(kafka, LOG)
    yield kafka


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "merge", *arguments])


def topics_here(kafka: KafkaSettings) -> set[str]:
    """Return the topics of this test."""
    return {name for name in partition_counts(kafka) if name.startswith(kafka.topic_prefix)}


def written(kafka: KafkaSettings, prefix: str) -> list[Trajectory]:
    """Return the trajectories under another prefix, in their order."""
    target = kafka.model_copy(update={"topic_prefix": prefix})
    items = read_topic(target, TRAJECTORIES, Skipped())
    return [item.record for item in items if isinstance(item.record, Trajectory)]


def test_a_log_is_verified_on_any_number_of_processes(log: KafkaSettings) -> None:
    before = topics_here(log)
    for processes in ("1", "2"):
        answer = run("--verify", "--json", "--processes", processes)
        assert answer.exit_code == 0, answer.output
        report = orjson.loads(answer.stdout)
        assert report["events"] == len(LOG[SESSIONS.name])
        assert report["sessions"] == report["verification"]["equal"] == len(recorded())
    assert topics_here(log) == before

    producer = Producer(log, "flaw")
    flawed = replace(next(iter(recorded().values())), reason="flaw")
    producer.send(TRAJECTORIES.name, flawed, key=flawed.group_id, partition=0)
    producer.send_bytes(SESSIONS.name, b"poison", partition=0)
    producer.close()
    answer = run("--verify")
    assert answer.exit_code != 0
    assert f"different: {flawed.session_id}, recorded at trajectories[0]@" in answer.output
    assert "skipped 1 unreadable record of sessions" in answer.output


def test_the_kept_log_of_a_finished_run_is_read_as_soon_as_its_broker_starts(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        write_golden(broker.settings, LOG)
    answer = run("--out", str(tmp_path), "--verify")
    assert answer.exit_code == 0, answer.output
    assert f"{len(recorded())} recorded trajectories are byte for byte" in answer.output


def test_a_replay_into_a_prefix_goes_on_where_an_earlier_one_ended(log: KafkaSettings) -> None:
    prefix = f"{log.topic_prefix}again."
    bounds = partition_bounds(log, SessionSelection())
    # An earlier replay that got to the middle of every partition.
    halves = {number: (0, end // 2) for number, (_, end) in bounds.items()}
    create_topics(log.model_copy(update={"topic_prefix": prefix}), [TRAJECTORIES])
    half = merge(MergeJob(log, halves, prefix=prefix))
    assert 0 < half.sessions < len(recorded())
    assert len(written(log, prefix)) == half.sessions

    answer = run("--to", prefix)
    assert answer.exit_code == 0, answer.output
    trajectories = written(log, prefix)
    assert len(trajectories) == len(recorded())
    assert {trajectory.session_id: trajectory for trajectory in trajectories} == recorded()
    assert partition_counts(log)[prefix + TRAJECTORIES.name] == TRAJECTORIES.partitions

    assert "merged " in answer.output
    repeated = run("--to", prefix)
    assert repeated.exit_code == 0, repeated.output
    assert "done already: an earlier replay merged all sessions" in repeated.output
    assert len(written(log, prefix)) == len(recorded())

    for others in (["--siblings", "all"], ["--group", "g"]):
        other = run("--to", prefix, *others)
        assert other.exit_code != 0
        assert "name another target" in str(other.exception)
    assert len(written(log, prefix)) == len(recorded())


def test_a_replay_into_files_is_read_by_any_avro_tool(log: KafkaSettings, tmp_path: Path) -> None:
    answer = run("--to-directory", str(tmp_path / "again"))
    assert answer.exit_code == 0, answer.output
    sessions: dict[str, Any] = {}
    for path in (tmp_path / "again").iterdir():
        with path.open("rb") as file:
            rows: Iterable[Any] = reader(file)
            sessions |= {row["session_id"]: row for row in rows}
    assert {name: row["tokens"] for name, row in sessions.items()} == {
        name: trajectory.tokens for name, trajectory in recorded().items()
    }
    again = run("--to-directory", str(tmp_path / "again"))
    shares = SMALL[SESSIONS.name].partitions
    assert f"{shares} partitions were written by an earlier replay" in again.output
    assert "done already" in again.output


def test_a_selection_that_no_session_meets_is_no_silent_success(log: KafkaSettings) -> None:
    session_id = next(iter(recorded()))
    named = [session_id, "typo", "--json"]
    for command in (["merge"], ["match", "--strictness", "content"]):
        answer = CliRunner().invoke(app, ["replay", *command, *named])
        assert answer.exit_code == 78, answer.output
        assert orjson.loads(answer.stdout)["not_found"] == ["session typo"]
        answer = CliRunner().invoke(app, ["replay", *command, "--task", "no", "--group", "none"])
        assert answer.exit_code == 78, answer.output
        assert "not found among the sessions that were read: group none, task no" in answer.output
        answer = CliRunner().invoke(app, ["replay", *command, "--versions", "900-"])
        assert answer.exit_code == 0, answer.output
        assert "no session that ended matches the selection" in answer.output
        answer = CliRunner().invoke(app, ["replay", *command, "--offsets", "99:0-60"])
        assert "--offsets: there is no partition 99" in str(answer.exception)


def test_a_difference_names_the_rule_and_shows_both_trees(log: KafkaSettings) -> None:
    answer = run("forks-free", "--diff", "--siblings", "all", "--mask-undelivered")
    assert answer.exit_code == 0, answer.output
    assert "siblings = all" in answer.output
    assert "abandoned" in answer.output
    assert answer.output.count("forks-free  policy") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--verify", "--siblings", "all"], "--verify"),
        (["--diff"], "--diff"),
        (["--versions", "new"], "--versions"),
        (["--since", "yesterday"], "--since"),
        (["--offsets", "3"], "--offsets"),
        (["--return", "correct"], "--return"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    kafka: KafkaSettings,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    answer = run(*arguments)
    assert answer.exit_code != 0
    assert message in str(answer.exception)


def test_a_trial_counts_every_recorded_turn(log: KafkaSettings) -> None:
    answer = CliRunner().invoke(app, ["replay", "match", "--strictness", "content", "--json"])
    assert answer.exit_code == 0, answer.output
    report = orjson.loads(answer.stdout)
    assert report["sessions"] == len(recorded())
    rules = {"root", "extend", "render", "same"}
    of_forks = {"not recorded"}
    assert rules <= {row["would_match"] for row in report["rules"]} <= rules | of_forks
    turns, tried = Counter[str](), Counter[str]()
    for trajectory in recorded().values():
        turns.update(trajectory.match_rules)
    for row in report["rules"]:
        tried[row["recorded"]] += row["turns"]
    assert tried == turns


def test_a_trial_is_of_one_thing(log: KafkaSettings) -> None:
    for tried in ([], ["--strictness", "content", "--renderer", "qwen3"]):
        answer = CliRunner().invoke(app, ["replay", "match", *tried])
        assert isinstance(answer.exception, SettingsRejected)
