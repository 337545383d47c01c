"""The trainer on a real broker: a recorded topic in, steps and weights out."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES, Topic
from seamlessflow.trainer.roles.gang import AnotherTrainer, GangMismatch
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.auditing.trained_files import read_trained
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.own_topics import small
from tests.builders.records import control
from tests.builders.trainer.models import bandit, bandit_return, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment

GROUP_SIZE = 6
MOST_LIVES = 6
"""So many steps have groups, each in a life of its own."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def sessions(model: Path) -> list[Trajectory]:
    """Return 24 groups sampled from the initial weights."""
    return bandit(model, 24, GROUP_SIZE)


@pytest.fixture
def log(kafka: KafkaSettings) -> KafkaSettings:
    # Groups of one partition arrive in one order, so that a run has the same digits each time.
    create_topics(kafka, [*small(CONTROL, FLEET), replace(TRAJECTORIES, partitions=1)])
    return kafka


@pytest.fixture
def scheduler(log: KafkaSettings) -> Iterator[ScriptedScheduler]:
    scheduler = ScriptedScheduler(log)
    yield scheduler
    scheduler.close()


def started(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings, model: Path, data: Path, **more: object
) -> RunningTrainer:
    for name, value in environment(kafka, model, data, **more).items():
        monkeypatch.setenv(name, value)
    return RunningTrainer(TrainerSettings())


def test_a_recorded_topic_is_learned_from_to_the_last_step(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_sessions(log, sessions)
    running = started(monkeypatch, log, model, tmp_path)
    running.join()
    scheduler.wait_for(lambda: bool(scheduler.records(r.RunFinished)))
    completed = scheduler.records(r.StepCompleted)
    assert [record.step for record in completed] == list(range(6))
    assert [record.version for record in completed] == list(range(1, 7))
    trained = [
        group.group_id for commit in scheduler.records(r.StepCommitted) for group in commit.groups
    ]
    assert sorted(trained) == sorted(f"run-{number}" for number in range(24))
    assert sorted(record.group_id for record in scheduler.records(r.GroupConsumed)) == sorted(
        trained
    )
    weights = scheduler.records(r.WeightsPublished)
    assert [record.version for record in weights] == list(range(7))
    last = verify(Path(weights[-1].directory), weights[-1].manifest_sha256)
    assert (last.version, last.optimizer_step, last.policy) == (6, 6, "tiny")
    assert bandit_return(Path(weights[-1].directory)) > bandit_return(model) + 0.2
    assert completed[0].metrics["mismatch_max"] < 1e-4
    assert completed[3].metrics["staleness_max"] == 3
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("advantage", "critic"),
    [
        ("gae", "model"),
        ("gae", "head"),
        ("turn_gae", "model"),
        ("reinforce_pp", "model"),
        ("reinforce_pp_baseline", "model"),
    ],
)
def test_advantages_of_a_whole_batch_are_learned_from(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    advantage: str,
    critic: str,
) -> None:
    record_sessions(log, sessions)
    more = {
        "TRAINER__ADVANTAGE": advantage,
        "TRAINER__CRITIC__KIND": critic,
        "TRAINER__KL_PENALTY": 0.01,
    }
    started(monkeypatch, log, model, tmp_path, **more, TRAINER__CRITIC__LR=0.01).join()
    scheduler.wait_for(lambda: bool(scheduler.records(r.RunFinished)))
    weights = scheduler.records(r.WeightsPublished)
    assert bandit_return(Path(weights[-1].directory)) > bandit_return(model) + 0.2
    expected = {"value_loss", "value_mean", "explained_variance"}
    reported = expected & scheduler.records(r.StepCompleted)[-1].metrics.keys()
    assert reported == (expected if advantage.endswith("gae") else set())


@pytest.mark.slow
def test_trees_with_advantages_scaled_by_entropy_are_learned_from(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_sessions(log, sessions)
    more = {"TRAINER__LAYOUT": "tree", "TRAINER__RETURNS__ENTROPY_SCALE": 0.5}
    started(monkeypatch, log, model, tmp_path, **more).join()
    scheduler.wait_for(lambda: bool(scheduler.records(r.RunFinished)))
    weights = scheduler.records(r.WeightsPublished)
    assert bandit_return(Path(weights[-1].directory)) > bandit_return(model) + 0.2
    assert all(
        record.metrics["tokens_saved"] > 0.2 for record in scheduler.records(r.StepCompleted)
    )


def test_each_step_is_reported_in_the_order_that_survives_a_kill(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_sessions(log, sessions)
    started(monkeypatch, log, model, tmp_path, RUN__STEPS=1).join()
    scheduler.wait_for(lambda: bool(scheduler.records(r.RoleReleased)))
    names = [
        type(record).__name__
        for record in scheduler.read
        if not isinstance(record, r.WorkerHeartbeat)
    ]
    order = ["BatchReady", "StepStarted", "StepCommitted", "WeightsPublished", "GroupConsumed"]
    order += ["GroupConsumed"] * 3 + ["StepCompleted", "RunFinished", "RoleReleased"]
    begun = names[names.index("BatchReady") :]
    assert [name for name in begun if name in order] == order
    weights = scheduler.records(r.PolicyWeights)
    assert [record.version for record in weights] == [0, 1]
    assert weights[1].overrides.temperature == 1
    assert len(weights[1].tokenizer_hash) == 64
    tokens = sum(len(session.loss_mask) - 1 for session in sessions[: 4 * GROUP_SIZE])
    (file,) = (tmp_path / "trained").iterdir()
    header, runs = read_trained(file)
    assert (header.step, header.version) == (0, 1)
    assert header.tokens == sum(len(run.ids) for run in runs) <= tokens
    by_session = {session.session_id: session for session in sessions}
    for run in runs:
        ids = by_session[run.session].tokens[4 * (1 + run.offset) :]
        assert b"".join(i.to_bytes(4, "little") for i in run.ids) == ids[: 4 * len(run.ids)]


def test_the_device_goes_to_rollout_and_comes_back(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    running = started(monkeypatch, log, model, tmp_path)
    scheduler.wait_for(lambda: bool(scheduler.records(r.RoleAcquired)))
    lines = (
        "trainer of tiny is ready at step 0, version 0",
        "training process w is ready, version 0",
        "role train acquired",
    )
    # Leader and rank are two threads: the role may be there before the leader says that it is.
    scheduler.wait_for(lambda: all(line in caplog.text for line in lines))
    scheduler.assign("rollout")
    scheduler.wait_for(lambda: bool(scheduler.records(r.RoleReleased)))
    scheduler.send(control.acquired(incarnation="x", assignment=2, at_ms=now_ms()))
    scheduler.assign()
    scheduler.wait_for(lambda: scheduler.records(r.WorkerHeartbeat)[-1].assignment == 3)
    assert len(scheduler.records(r.RoleAcquired)) == 2
    scheduler.send(control.released(incarnation="x", assignment=3, at_ms=now_ms()))
    scheduler.wait_for(lambda: len(scheduler.records(r.RoleAcquired)) == 3)
    running.stop()
    scheduler.wait_for(lambda: len(scheduler.records(r.RoleReleased)) == 3)
    scheduler.wait_for(lambda: scheduler.records(r.WorkerHeartbeat)[-1].state == ENDED)


def test_a_second_leader_on_the_same_log_ends_with_an_error(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = started(monkeypatch, log, model, tmp_path)
    scheduler.wait_for_count(r.RoleAcquired, 1)
    scheduler.send(control.committed(lineage="another"))
    with pytest.raises(AnotherTrainer, match="another"):
        running.join()
    assert scheduler.records(r.WorkerHeartbeat)[-1].worker == "w"


def test_a_gang_larger_than_the_back_end_is_a_typed_error(
    log: KafkaSettings,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_sessions(log, sessions)
    scheduler = ScriptedScheduler(log, others=["w2"])
    running = started(monkeypatch, log, model, tmp_path)
    with pytest.raises(GangMismatch, match="w, w2"):
        running.join()
    scheduler.close()


def test_a_trainer_goes_on_after_garbage_and_buries_that_of_its_topic_once(
    log: KafkaSettings,
    scheduler: ScriptedScheduler,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    garbage = litter(log, TRAJECTORIES, 0, sessions[0])
    record_sessions(log, sessions)
    # A trainer on a busy machine may end its step before it has read that partition. The last one
    # reads garbage that one before it has buried.
    for steps in range(1, MOST_LIVES):
        before = buried(log, TRAJECTORIES, 0)
        litter(log, CONTROL, 0, control.lost())
        started(monkeypatch, log, model, tmp_path, RUN__STEPS=steps).join()
        scheduler.wait_for_count(r.StepCommitted, steps)
        if before:
            break
    assert buried(log, TRAJECTORIES, 0) == garbage
    assert buried(log, CONTROL, 0) == []


@pytest.mark.parametrize("topic", [CONTROL, TRAJECTORIES])
def test_a_trainer_stops_at_a_record_of_a_newer_release(
    log: KafkaSettings, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: Topic
) -> None:
    append_newer(log, topic, 0)
    with pytest.raises(NewerRelease, match=rf"{topic.name}\[0\]@0"):
        started(monkeypatch, log, model, tmp_path).join()
