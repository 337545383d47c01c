"""A trainer whose batches have stored sessions, of its own and of other logs, on a real broker."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.importing.foreign_row import foreign_row
from seamlessflow.recorded.importing.foreign_trajectory import (
    ForeignRules,
    RowOrigin,
    foreign_trajectory,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.mixing.pools import Pool
from seamlessflow.trainer.mixing.stored import StoredRules
from seamlessflow.trainer.mixing.topics import PoolTopics, PoolUnusable
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.own_topics import own_topics, small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.waiting import until

LIMIT_S = 120
END = -1
"""Offset that stands for all records of a partition."""
GROUPS = 12
FAILED = ("run-0", "run-1", "run-2", "run-8")
"""Groups of the tasks 0, 1, 2 and 0, of which every session failed; all others have their own."""


@pytest.fixture
def logs(broker: KafkaSettings) -> Iterator[list[KafkaSettings]]:
    """Topics of the recording to train, and of two pools."""
    with ExitStack() as stack:
        made = [stack.enter_context(own_topics(broker)) for _ in range(3)]
        for kafka in made:
            create_topics(kafka, small(TRAJECTORIES))
        yield made


def sessions_of(model: Path, digest: str) -> list[Trajectory]:
    made = []
    for session in bandit(model, GROUPS, 4):
        number = int(session.group_id.removeprefix("run-"))
        rewards = (r.Reward(value=0.0),) if session.group_id in FAILED else session.rewards
        made.append(
            replace(
                session,
                tokenizer_hash=digest,
                task_id=f"t{0 if number == 8 else number}",
                rewards=rewards,
            )
        )
    return made


def imported(task: str) -> Trajectory:
    row: dict[str, Any] = {
        "prompt_ids": [2],
        "completion_ids": [3, 5],
        "reward": 1.0,
        "task_id": task,
        "policy": "expert",
    }
    origin = RowOrigin("rows.jsonl", "rows.jsonl", "abc", 1)
    made = foreign_row("rows.jsonl", 1, row)
    return foreign_trajectory(origin, made, ForeignRules(train=True, unscored=True))


def run(
    monkeypatch: pytest.MonkeyPatch,
    kafka: KafkaSettings,
    logs: Sequence[KafkaSettings],
    model: Path,
    out: Path,
    **more: object,
) -> None:
    """Set the variables of a training with both pools, and of its own."""
    pools = {
        "own": {"uses": 3},
        **{name: {"prefix": log.topic_prefix} for name, log in zip("ab", logs[1:], strict=True)},
    }
    settings = {
        "TRAINER__SOURCE_PREFIX": logs[0].topic_prefix,
        "TRAINER__REPLAY": json.dumps({"name": "rescue", "pools": pools}),
        "TRAINER__CHECKPOINT_EVERY": 2,
        **more,
    }
    for name, value in environment(kafka, model, out, **settings).items():
        monkeypatch.setenv(name, value)


def test_failed_groups_are_rescued_and_every_step_is_repeated_and_audited(
    kafka: KafkaSettings,
    logs: list[KafkaSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topics(kafka, small(CONTROL, FLEET))
    model = write_tiny(tmp_path / "model")
    run(monkeypatch, kafka, logs, model, tmp_path, RUN__STEPS=1)
    digest = Publication(TrainerSettings()).tokenizer_hash
    sessions = sessions_of(model, digest)
    record_sessions(logs[0], sessions)
    # The pool has sessions of the same ids: all ids of other logs are named after their pool.
    success = next(each for each in sessions if each.rewards[0].value == 1.0)
    record_sessions(logs[1], [replace(success, task_id="t0"), replace(sessions[0], task_id="t1")])
    record_sessions(logs[2], [imported("t2")])
    scheduler = ScriptedScheduler(kafka)
    try:
        RunningTrainer(TrainerSettings()).join()
        monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "3")
        RunningTrainer(TrainerSettings()).join()
        commits = scheduler.records(r.StepCommitted)
        assert len(commits) == 3
        replaced = {
            group.group_id: (each.pool, each.by, each.uses)
            for commit in commits
            for group in commit.groups
            for each in group.replaced
        }
        first = f"a/{success.session_id}"
        # Task 1 has only a stored failure; task 0 is of two groups, in two steps.
        assert replaced["run-0"] == ("a", first, 0)
        assert replaced["run-2"] == ("b", f"b/{imported('t2').session_id}", 0)
        assert "run-1" not in replaced
        assert replaced["run-8"] == ("a", first, 1)
        trained = {name for commit in commits for name in commit.trained_tokens}
        assert {first, replaced["run-2"][1]} < trained
        metrics = scheduler.records(r.StepCompleted)[0].metrics
        assert metrics["stored_replaced"] >= 1
        assert all(np.isfinite(value) for value in metrics.values())

        again = CliRunner().invoke(app, ["replay", "train"])
        assert (again.exit_code, "executed 3 steps: 3 equal" in again.output) == (0, True)
        clean(TrainerSettings().trained_dir)
    finally:
        scheduler.close()


def clean(trained: Path, *, fault: str = "") -> None:
    """Check that an audit finds no fault, and has looked at every token; or that it finds one."""
    shown = CliRunner().invoke(app, ["audit", "--json", "--trained", str(trained)])
    report = json.loads(shown.stdout)
    if fault:
        assert any(fault in violation["detail"] for violation in report["violations"]), report
        return
    assert shown.exit_code == 0, shown.output
    assert report["checks"]["tokens"]["not_checkable"] == 0
    assert report["checks"]["groups"]["violations"] == 0


def test_stored_groups_are_mixed_in_and_a_step_behind_the_checkpoint_is_repeated(
    kafka: KafkaSettings,
    logs: list[KafkaSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topics(kafka, small(CONTROL, FLEET))
    model = write_tiny(tmp_path / "model")
    replay = {
        "name": "mix",
        "foreign": 2,
        "pools": {"own": {"uses": 2}, "a": {"prefix": logs[1].topic_prefix, "uses": 2}},
    }
    more = {"TRAINER__REPLAY": json.dumps(replay), "TRAINER__CHECKPOINT_EVERY": 9}
    run(monkeypatch, kafka, logs, model, tmp_path, RUN__STEPS=3, **more)
    digest = Publication(TrainerSettings()).tokenizer_hash
    record_sessions(logs[0], sessions_of(model, digest))
    record_sessions(logs[1], sessions_of(model, digest))
    scheduler = ScriptedScheduler(kafka)
    try:
        RunningTrainer(TrainerSettings()).join()
        first = scheduler.records(r.StepCommitted)
        assert [sum(bool(group.pool) for group in commit.groups) for commit in first] == [2, 2, 2]
        # Without the checkpoint all steps are executed again, by their records.
        for state in (tmp_path / "checkpoints").glob("*/state.json"):
            state.unlink()
        RunningTrainer(TrainerSettings()).join()
        second = scheduler.records(r.StepCommitted)[len(first) :]
        assert [commit.groups for commit in second] == [commit.groups for commit in first]
        hashes: dict[int, set[str]] = {}
        for weights in scheduler.records(r.WeightsPublished):
            hashes.setdefault(weights.step, set()).add(weights.tensors_hash)
        assert [len(tensors) for tensors in hashes.values()] == [1, 1, 1, 1]
        again = CliRunner().invoke(app, ["replay", "train"])
        assert (again.exit_code, "executed 3 steps: 3 equal" in again.output) == (0, True)
        clean(TrainerSettings().trained_dir)
    finally:
        scheduler.close()


def test_a_pool_of_another_tokenizer_is_refused_and_an_empty_one_is_not(
    kafka: KafkaSettings,
    logs: list[KafkaSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topics(kafka, small(CONTROL, FLEET))
    model = write_tiny(tmp_path / "model")
    run(monkeypatch, kafka, logs, model, tmp_path, RUN__STEPS=1)
    digest = Publication(TrainerSettings()).tokenizer_hash
    record_sessions(logs[0], sessions_of(model, digest))
    scheduler = ScriptedScheduler(kafka)
    try:
        RunningTrainer(TrainerSettings()).join()
        assert len(scheduler.records(r.StepCommitted)) == 1
        record_sessions(logs[1], sessions_of(model, "another"))
        monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "2")
        with pytest.raises(PoolUnusable, match=r"pools\.a: .*48 of another tokenizer"):
            RunningTrainer(TrainerSettings()).join()
        replay = {"name": "mix", "pools": {"old": {"prefix": "nowhere."}}}
        monkeypatch.setenv("SEAMLESSFLOW_TRAINER__REPLAY", json.dumps(replay))
        with pytest.raises(PoolUnusable, match=r"pools\.old: nowhere\.trajectories is not there"):
            RunningTrainer(TrainerSettings()).join()
    finally:
        scheduler.close()


def trim(kafka: KafkaSettings, partition: int, before: int = END) -> None:
    """Delete a pool's records of a partition before an offset, as retention does."""
    place = TopicPartition(kafka.topic_prefix + TRAJECTORIES.name, partition, before)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([place])[place].result(LIMIT_S)


def stored_as(name: str) -> Trajectory:
    return replace(imported(name), session_id=name, group_id=name)


def test_sessions_that_retention_removes_while_a_pool_is_in_use_are_gone_and_the_rest_is_read(
    logs: list[KafkaSettings],
) -> None:
    names = [f"t{number}" for number in range(5)]
    record_sessions(logs[1], [stored_as(name) for name in names])
    pool = Pool("a")
    topics = PoolTopics({"a": logs[1]}, {"a": pool}, StoredRules("tiny", {"reward": 1.0}, None))
    topics.open()
    try:
        sessions = [group.sessions[0] for group in pool.groups.values()]
        stored = sorted(sessions, key=lambda session: session.session_id)
        wanted = [("a", session) for session in stored]
        ids = [session.session_id for session in stored]
        assert len(ids) == len(names)
        assert sorted(topics.sessions(wanted)) == ids
        gone = stored[0]
        trim(logs[1], gone.partition, gone.offset + 1)
        left = [
            each.session_id
            for each in stored
            if each.partition != gone.partition or each.offset > gone.offset
        ]
        assert sorted(topics.sessions(wanted)) == left
        for partition in {each.partition for each in stored}:
            trim(logs[1], partition)
        topics.update()
        assert topics.sessions(wanted) == {}
        record_sessions(logs[1], [stored_as("later")])

        def taken() -> bool:
            topics.update()
            return any(group.task_id == "later" for group in pool.groups.values())

        until(taken, "the session that came later")
    finally:
        topics.close()
