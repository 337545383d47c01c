"""The evaluation of the last version, on a real broker: the run waits for it and reports it."""

import csv
from pathlib import Path

import pytest

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.own_topics import small
from tests.builders.records import control
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trajectories import one_turn


def test_a_run_ends_when_its_last_version_is_evaluated(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    (tmp_path / "model").mkdir()
    model = write_tiny(tmp_path / "model")
    more = {"RUN__STEPS": 1, "EVALUATION__TASKS": tmp_path / "tasks.jsonl"}
    for name, value in environment(kafka, model, tmp_path / "data", **more).items():
        monkeypatch.setenv(name, value)
    scheduler, producer = ScriptedScheduler(kafka), Producer(kafka, "test-manager")
    for trajectory in bandit(model, 4, 6):
        producer.send(TRAJECTORIES.name, trajectory, key=trajectory.group_id)
    running = RunningTrainer(TrainerSettings())
    scheduler.wait_for_count(r.StepCompleted, 1)
    rewards = {"run-eval1-0": 1.0, "run-eval1-1": 0.0}
    asked = {"version": 1, "purpose": "eval", "split": "test", "deadline_ms": 2**60}
    for group in rewards:
        scheduler.send(control.admitted(group, **asked))
    # A round is over when no group of it is open, so all are admitted before the first ends.
    scheduler.wait_for_count(r.GroupAdmitted, len(rewards))
    for group, reward in rewards.items():
        made = one_turn(f"{group}.0.0", reward, 1, group=group, purpose="eval")
        producer.send(TRAJECTORIES.name, made, key=group)
    running.join()
    scheduler.wait_for_count(r.RunFinished, 1)
    kinds = [type(record) for record in scheduler.read]
    assert kinds.index(r.EvaluationCompleted) < kinds.index(r.RunFinished)
    (result,) = scheduler.records(r.EvaluationCompleted)
    assert (result.version, result.step, result.sessions, result.reward_mean) == (1, 1, 2, 0.5)
    with (tmp_path / "data" / "metrics.csv").open() as rows:
        assert [row["eval_reward_mean"] for row in csv.DictReader(rows)] == ["", "0.5"]
    scheduler.close()
    producer.close()
