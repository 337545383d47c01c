"""The optimizer steps of a recorded run, executed again from a real broker."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from infra.kafka.producer import Producer
from infra.kafka.topics.creation import create_topics
from infra.settings import KafkaSettings
from schemas import records as r
from schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.__main__ import app
from tests.builders.own_topics import small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from trainer.settings import TrainerSettings

STEPS = 4


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "train", *arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model")


@pytest.fixture
def log(
    kafka: KafkaSettings, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KafkaSettings:
    """Return a cluster with a run that was stopped once, which the environment names."""
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    record_sessions(kafka, bandit(model, 4 * STEPS, 6))
    settings = environment(kafka, model, tmp_path / "data", RUN__STEPS=STEPS)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    scheduler = ScriptedScheduler(kafka)
    try:
        first = RunningTrainer(TrainerSettings())
        scheduler.wait_for_count(r.StepCompleted, 2)
        first.stop()
        RunningTrainer(TrainerSettings()).join()
        scheduler.wait_for(lambda: bool(scheduler.of(r.RunFinished)))
        assert len(scheduler.of(r.LineageStarted)) == 2
    finally:
        scheduler.close()
    for name in settings:
        if "KAFKA" not in name:
            monkeypatch.delenv(name)
    return kafka


def test_steps_executed_again_make_the_same_tensors(log: KafkaSettings, tmp_path: Path) -> None:
    tensors = tmp_path / "tensors.json"
    answer = run("--json", "--tensors", str(tensors))
    assert answer.exit_code == 0, answer.output
    steps = orjson.loads(answer.stdout)
    assert [one["step"] for one in steps] == list(range(STEPS))
    assert all(one["equal"] and one["tensors_hash"] for one in steps)
    for one in steps:
        assert one["metrics"]["loss"] == one["recorded_metrics"]["loss"]
    assert len(orjson.loads(tensors.read_bytes())) > 1

    changes = ["--set", "trainer.loss.name=tis", "--set", "trainer.optimizer.lr=0.5"]
    picture, weights = tmp_path / "other.png", tmp_path / "other"
    options = ["--tensors", str(tensors), "--picture", str(picture), "--weights", str(weights)]
    other = run(*changes, *options)
    assert other.exit_code == 0, other.output
    assert f"executed {STEPS} steps with other settings" in other.output
    assert "the first tensor that differs from" in other.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(weights.glob("*.safetensors"))

    wrong = run("--set", "trainer.loss.nam=tis")
    assert "there are" in str(wrong.exception)
    assert "name" in str(wrong.exception)


def test_a_run_that_lacks_something_is_refused_by_its_name(log: KafkaSettings, model: Path) -> None:
    producer = Producer(log, "test")
    lost = r.StepCommitted(
        at_ms=0,
        step=STEPS,
        lineage="unknown",
        version=99,
        groups=(r.StepGroup(group_id="g", sessions=("gone",)),),
    )
    producer.send(CONTROL.name, lost)
    producer.flush(30)
    assert "settings of lineage unknown are not recorded" in str(run().exception)
    producer.close()


def test_another_initial_model_is_refused(log: KafkaSettings, model: Path) -> None:
    write_tiny(model, seed=7)
    assert "has other tensors" in str(run().exception)
    for path in model.iterdir():
        path.unlink()
    model.rmdir()
    assert "is not there" in str(run().exception)
