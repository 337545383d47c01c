"""The optimizer steps of a recorded run, executed again from a real broker."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import ENV_PREFIX, KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.own_topics import own_topics, small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment

STEPS = 4


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "train", *arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recorded(
    broker: KafkaSettings, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaSettings]:
    """Yield a cluster with a run of two steps that went on with other settings."""
    data = tmp_path_factory.mktemp("data")
    with own_topics(broker) as kafka, pytest.MonkeyPatch.context() as variables:
        settings = environment(kafka, model, data, RUN__STEPS=2)
        for name, value in settings.items():
            variables.setenv(name, value)
        train_twice(kafka, model, variables)
        yield kafka


@pytest.fixture
def log(recorded: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return the cluster, which the environment names; it has no other settings."""
    for name in os.environ:
        if name.startswith(ENV_PREFIX) and "KAFKA" not in name:
            monkeypatch.delenv(name)
    return recorded


def train_twice(kafka: KafkaSettings, model: Path, variables: pytest.MonkeyPatch) -> None:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    # In each group rewards differ: one of equal rewards has no gradient that a loss could change.
    sessions = [
        replace(session, rewards=(r.Reward(value=float(session.sample % 2)),))
        for session in bandit(model, 4 * STEPS, 6)
    ]
    record_sessions(kafka, sessions)
    scheduler = ScriptedScheduler(kafka)
    try:
        RunningTrainer(TrainerSettings()).join()
        variables.setenv("SEAMLESSFLOW_RUN__STEPS", str(STEPS))
        variables.setenv("SEAMLESSFLOW_TRAINER__OPTIMIZER__LR", "0.01")
        RunningTrainer(TrainerSettings()).join()
        scheduler.wait_for_count(r.RunFinished, 2)
        assert len(scheduler.records(r.LineageStarted)) == 2
    finally:
        scheduler.close()


def test_steps_executed_again_make_the_same_tensors(log: KafkaSettings, tmp_path: Path) -> None:
    tensors = tmp_path / "tensors.json"
    answer = run("--json", "--tensors", str(tensors))
    assert answer.exit_code == 0, answer.output
    steps = orjson.loads(answer.stdout)
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert all(row["equal"] and row["tensors_hash"] for row in steps)
    for step in steps:
        assert step["metrics"]["loss"] == step["recorded_metrics"]["loss"]
    assert len(orjson.loads(tensors.read_bytes())) > 1
    changed = f"run.steps 2 -> {STEPS}, trainer.optimizer.lr 0.02 -> 0.01"
    assert f"resumed behind step 2 with 2 other settings: {changed}" in answer.stderr

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


def test_two_machines_find_the_first_tensor_of_a_step_that_differs(
    log: KafkaSettings, tmp_path: Path
) -> None:
    budget = ["--set", "trainer.micro_batch_tokens=24"]
    clipped = [f"--set=trainer.loss.clip_{side}=0.0001" for side in ("low", "high")]
    for last, name in (("1", "hashes.json"), ("0", "values.safetensors")):
        place = ["--step", "2", "--micro-batch", last, "--tensors", str(tmp_path / name), *budget]
        wrote = run(*place)
        assert wrote.exit_code == 0, wrote.output
        assert f"up to micro-batch {last} of" in wrote.output
        assert "tensors are those of" in run(*place).output
        other = run(*place, *clipped)
        assert "the first: gradient of model.norm.weight after micro-batch" in other.output, (
            other.output
        )
    assert "numbers by at most" in other.output
    assert "of step 2, micro-batch 0" in str(run("--step", "1", *place[2:]).exception)
    assert "needs --tensors" in str(run("--step", "1").exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step", "99", "--tensors", "new.json"], f"--step: the run has {STEPS}"),
        (["--step", "2", "--micro-batch", "99", "--tensors", "new.json"], "--micro-batch: step 2"),
        (["--picture", "nodir/x.png"], "--picture: there is no directory nodir"),
        (["--picture", "x.foo"], "--picture: x.foo does not end with .png"),
        (["--tensors", "nodir/x.json"], "--tensors: there is no directory nodir"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_step_is_executed(
    log: KafkaSettings,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run(*options)
    assert isinstance(answer.exception, SettingsRejected)
    assert message in str(answer.exception)
    assert "step 0" not in answer.output


def test_another_initial_model_is_refused(log: KafkaSettings, model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.move(model, kept)
    assert "is not there" in str(run().exception)
    write_tiny(model, seed=7)
    assert "has other tensors" in str(run().exception)
    shutil.rmtree(model)
    shutil.move(kept, model)
