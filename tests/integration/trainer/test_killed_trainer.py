"""A trainer that is killed with -9: it trains each group once, and steps repeat to the bit."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.recovery.resume import surviving
from tests.builders.auditing.trained_files import read_trained
from tests.builders.own_topics import small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses

SEVERAL = {
    "TRAINER__CHECKPOINT_EVERY": 2,
    "TRAINER__MINI_BATCHES": 2,
    "TRAINER__EPOCHS": 2,
    "TRAINER__ADVANTAGE": "gae",
    "TRAINER__CRITIC__LR": 0.01,
    "TRAINER__LOSS__SURROGATE": "ppo_clip",
    "TRAINER__LOSS__CORRECTION": "tis",
    "TRAINER__LOSS__KL": 0.1,
    # So many micro-batches that a step is not over before its process can be killed.
    "TRAINER__MICRO_BATCH_TOKENS": 6,
}
"""Several updates of a step by the decoupled objective, with a critic and a reference."""


@pytest.mark.slow
def test_a_killed_trainer_trains_every_group_in_exactly_one_surviving_step(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    model = write_tiny(tmp_path / "model")
    record_sessions(kafka, bandit(model, 24, 6))
    env = environment(kafka, model, tmp_path, **SEVERAL)
    scheduler = ScriptedScheduler(kafka)
    try:
        killed_twice(env, scheduler)
    finally:
        scheduler.close()
    commits = scheduler.records(r.StepCommitted)
    assert_each_group_once(commits)
    assert_equal_weights(scheduler.records(r.WeightsPublished))
    assert scheduler.records(r.RunFinished)[0].steps == 6
    consumed = {record.group_id for record in scheduler.records(r.GroupConsumed)}
    assert consumed == {f"run-{number}" for number in range(24)}
    for commit in surviving(commits):
        name = f"step-{commit.step:08d}-version-{commit.version:08d}.jsonl.gz"
        header, _ = read_trained(tmp_path / "trained" / name)
        assert header.lineage == commit.lineage
    for name, value in env.items():
        if "KAFKA" in name:
            monkeypatch.setenv(name, value)
    answer = CliRunner().invoke(app, ["replay", "train", "--json"])
    assert answer.exit_code == 0, answer.output
    assert [row["equal"] for row in orjson.loads(answer.stdout)] == [True] * 6


def killed_twice(env: Mapping[str, str], scheduler: ScriptedScheduler) -> None:
    """Let a run reach its end although first its trainer and then its device is killed."""
    # The trainer itself, behind a step without a checkpoint.
    with TrainerProcesses(env) as processes:
        scheduler.wait_for_count(r.WeightsPublished, 4)
        assert processes.kill(0) == [ExitStatus.PASSING]
    # The process that has the weights, within a step: the trainer ends too.
    with TrainerProcesses(env) as processes:
        scheduler.wait_for(
            lambda: any(record.step == 5 for record in scheduler.records(r.StepStarted))
        )
        assert processes.kill(1) == [ExitStatus.PASSING]
    with TrainerProcesses(env) as processes:
        assert processes.wait() == [0, 0]
    scheduler.wait_for(lambda: bool(scheduler.records(r.RunFinished)))


def assert_each_group_once(commits: Sequence[r.StepCommitted]) -> None:
    assert len({commit.version for commit in commits}) == len(commits)
    lineages = list(dict.fromkeys(commit.lineage for commit in commits))
    first, second, third = (
        [commit.step for commit in commits if commit.lineage == lineage] for lineage in lineages
    )
    assert second[0] in first and third[0] in second, "a committed step without a checkpoint"
    assert second[-1] == 4, "step 5 had begun"
    final = surviving(commits)
    assert [commit.step for commit in final] == list(range(6))
    groups = [group.group_id for commit in final for group in commit.groups]
    assert sorted(groups) == sorted(f"run-{number}" for number in range(24))
    members = {(commit.step, group) for commit in commits for group in commit.groups}
    assert len(members) == 24, "a step that is done again trains on the same sessions"


def assert_equal_weights(published: Sequence[r.WeightsPublished]) -> None:
    """Check that steps that were executed again made the same tensors, to the bit."""
    made: dict[int, list[r.WeightsPublished]] = {}
    for weights in published:
        made.setdefault(weights.step, []).append(weights)
    assert (
        sum(
            len({record.lineage for record in records}) > 1
            for step, records in made.items()
            if step
        )
        > 1
    )
    for repeats in made.values():
        assert len({record.tensors_hash for record in repeats}) == 1
