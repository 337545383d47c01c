"""`seamlessflow train --from`: what is refused before a process starts, and leaves nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import TRAJECTORIES
from tests.builders.own_topics import own_topics, small
from tests.builders.run_files import run_values
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.trajectories import one_turn


@pytest.fixture
def recording(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    with own_topics(broker) as source:
        create_topics(source, small(TRAJECTORIES))
        yield source


def refusal(folder: Path, recording: KafkaSettings, policy: str, *prefixes: str) -> str:
    kafka = {"bootstrap_servers": recording.bootstrap_servers}
    values = {**run_values(folder), "kafka": kafka, "run": {"policy": policy}}
    file = folder / "run.yaml"
    file.write_text(json.dumps(values, default=str))
    answer = CliRunner().invoke(app, ["train", "--config", str(file), *prefixes])
    assert isinstance(answer.exception, SettingsRejected), answer.output
    return str(answer.exception)


def test_what_cannot_be_trained_is_refused_and_leaves_neither_topics_nor_files(
    recording: KafkaSettings, tmp_path: Path
) -> None:
    source = recording.topic_prefix
    empty = refusal(tmp_path, recording, "tiny", "--from", source)
    assert empty == f"--from: {source}trajectories has no session"
    record_sessions(recording, [one_turn("g.0.0")])
    before = set(partition_counts(recording))
    other = refusal(tmp_path, recording, "other", "--from", source, "--to", f"{source}x.")
    assert other == f"run.policy: is other, but the sessions of {source}trajectories are of tiny"
    nowhere = refusal(tmp_path, recording, "tiny", "--from", "nope.")
    assert nowhere == "--from: there is no nope.trajectories"
    for named, option in ((("--from", ""), "--from"), (("--from", source, "--to", "x"), "--to")):
        assert refusal(tmp_path, recording, "tiny", *named).startswith(f"{option}: ")
    assert set(partition_counts(recording)) == before
    assert not (tmp_path / "out").exists()
