"""`seamlessflow erase` where sessions are elsewhere too, or the log or a directory is wrong."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import MARKER
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.builders.own_topics import small
from tests.builders.trajectories.erasures import erase, name_cluster, records
from tests.builders.trajectories.exports import bring_in, brought_in
from tests.builders.trajectories.golden_topics import golden_log, write_golden

LOG = golden_log()
ERASED = "chat-plain"


@pytest.mark.parametrize("option", ["--exports", "--trained"])
def test_a_directory_that_is_not_there_is_refused_before_anything_is_written(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch, option: str, tmp_path: Path
) -> None:
    name_cluster(kafka, monkeypatch)
    monkeypatch.setenv("COLUMNS", "300")
    create_topics(kafka, small(CONTROL))
    file = tmp_path / "file.jsonl"
    file.touch()
    for wrong in (tmp_path / "missing", file):
        refused = erase(ERASED, "--to", f"{kafka.topic_prefix}clean.", option, str(wrong))
        assert refused.exit_code == 2
        assert option in refused.output and str(wrong) in refused.output
    assert f"{kafka.topic_prefix}clean.{CONTROL.name}" not in partition_counts(kafka)


def test_other_prefixes_are_named_and_one_of_trajectories_alone_is_erased_from(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name_cluster(kafka, monkeypatch)
    create_topics(kafka, small(CONTROL, TRAJECTORIES))
    foreign, clean = f"{kafka.topic_prefix}foreign.", f"{kafka.topic_prefix}clean."
    exported = tmp_path / "chains.jsonl"
    rows = [
        {"token_ids": [1], "mask": [1], "session_id": session_id}
        for session_id in (ERASED, "other")
    ]
    exported.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert bring_in(exported, "--to", foreign).exit_code == 0

    named = erase(ERASED, "--to", clean)
    assert f"also look at: erase {ERASED} --from {foreign} --to ..." in named.output
    assert f"--from {kafka.topic_prefix} " not in named.output
    assert f"--from {clean}" not in named.output

    erased = erase(ERASED, "--from", foreign, "--to", f"{foreign}clean.")
    assert "erased 1 of trajectories (1 Trajectory); kept 1" in erased.output
    assert "was imported from such a session" in erased.output
    (left,) = brought_in(kafka, f"{foreign}clean.")
    assert left.metadata["foreign_session_id"] == "other"


@pytest.mark.slow
def test_a_log_goes_on_without_a_record_that_only_looks_newer(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The commands of runbooks/schema-change.md."""
    name_cluster(kafka, monkeypatch)
    write_golden(kafka, LOG)
    with closing(Producer(kafka, "test")) as producer:
        producer.send_bytes(SESSIONS.name, MARKER + b"foreign!" + b"body", b"k", 0)
    before, target = records(kafka), f"{kafka.topic_prefix}clean."

    def exported(name: str) -> Result:
        asked = ["export", "--to", str(tmp_path / name), "--format", "jsonl"]
        return CliRunner().invoke(app, asked)

    assert isinstance(exported("stopped").exception, NewerRelease)
    stopped = erase("no-session", "--to", f"{kafka.topic_prefix}stopped.")
    assert isinstance(stopped.exception, NewerRelease)

    copied = erase("no-session", "--to", target, "--drop-undecodable")
    assert copied.exit_code == 0, copied.output
    assert "sessions: 1 records that cannot be decoded are left out" in copied.output
    clean = kafka.model_copy(update={"topic_prefix": target})
    (gone,) = set(before.items()) - set(records(clean).items())
    assert gone[0][:2] == (SESSIONS.name, 0)
    name_cluster(clean, monkeypatch)
    answer = exported("whole")
    assert answer.exit_code == 0, answer.output
    assert "skipped" not in answer.output
    assert CliRunner().invoke(app, ["replay", "merge", "--verify"]).exit_code == 0


def test_an_empty_prefix_is_deleted_without_asking_or_not_at_all(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_cluster(kafka, monkeypatch)
    clean = f"{kafka.topic_prefix}clean."
    refused = erase(ERASED, "--from", "", "--to", clean, "--delete-old")
    assert "prefix of the old topics is empty, so it cannot be typed: add --yes" in str(
        refused.exception
    )
    assert "type the prefix" not in refused.output
