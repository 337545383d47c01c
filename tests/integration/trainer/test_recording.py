"""A trainer that learns from recorded sessions under another prefix, on a real broker."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TRAJECTORIES
from seamlessflow.trainer.recording import RecordingUnusable
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.own_topics import own_topics, small
from tests.builders.trainer.models import bandit, bandit_return, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment


@pytest.fixture
def recording(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    with own_topics(broker) as source:
        create_topics(source, small(TRAJECTORIES))
        yield source


def audited(sessions: int, groups: int, trained: Path) -> None:
    """Check that an audit of the training finds its groups and tokens, and no fault."""
    shown = CliRunner().invoke(app, ["audit", "--json", "--trained", str(trained)])
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.stdout)
    counts = {name: list(check.values()) for name, check in report["checks"].items()}
    assert counts.keys() == {"sessions", "groups", "tokens"}
    assert counts["sessions"] == [0, 0, sessions, 0]
    assert counts["groups"] == [groups, 0, 0, 0]
    assert counts["tokens"][0] > 0
    assert counts["tokens"][2:] == [0, 0]
    assert "are not checkable here" in report["notices"][0]


def test_all_recorded_groups_are_trained_and_a_stopped_training_goes_on(
    kafka: KafkaSettings,
    recording: KafkaSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topics(kafka, small(CONTROL, FLEET))
    model = write_tiny(tmp_path / "model")
    more = {"RUN__STEPS": 1, "TRAINER__SOURCE_PREFIX": recording.topic_prefix}
    for name, value in environment(kafka, model, tmp_path, **more).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RecordingUnusable, match="it is empty"):
        RunningTrainer(TrainerSettings()).join()
    digest = Publication(TrainerSettings()).tokenizer_hash
    sessions = [replace(session, tokenizer_hash=digest) for session in bandit(model, 10, 6)]
    record_sessions(recording, sessions)

    scheduler = ScriptedScheduler(kafka)
    try:
        RunningTrainer(TrainerSettings()).join()
        monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "9")
        RunningTrainer(TrainerSettings()).join()
        scheduler.wait_for_count(r.RunFinished, 2)
        assert [record.steps for record in scheduler.records(r.RunFinished)] == [1, 3]
        commits = scheduler.records(r.StepCommitted)
        assert [len(commit.groups) for commit in commits] == [4, 4, 2]
        trained = [group.group_id for commit in commits for group in commit.groups]
        # In the same order in every training, whatever partition was read first.
        assert trained == sorted({session.group_id for session in sessions})
        last = scheduler.records(r.WeightsPublished)[-1]
        assert bandit_return(Path(last.directory)) > bandit_return(model)
        assert all(
            "mismatch_mean" not in record.metrics for record in scheduler.records(r.StepCompleted)
        )
        # All is read: another start has nothing to do.
        RunningTrainer(TrainerSettings()).join()
        assert len(scheduler.records(r.StepCommitted)) == 3
        again = CliRunner().invoke(app, ["replay", "train"])
        assert (again.exit_code, "executed 3 steps: 3 equal" in again.output) == (0, True)
        audited(len(sessions), len(trained), TrainerSettings().trained_dir)
    finally:
        scheduler.close()
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", recording.topic_prefix)
    refused = CliRunner().invoke(app, ["audit"])
    assert "is a recording alone" in str(refused.exception)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    create_topics(recording, small(SESSIONS))
    with pytest.raises(RecordingUnusable, match="belongs to a run"):
        RunningTrainer(TrainerSettings()).join()
