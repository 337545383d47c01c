"""Steps that lose groups, on a real broker: when the run ends, and what the next step reports."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.barren import NothingToTrain
from tests.builders.own_topics import small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.running_trainer import RunningTrainer
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trajectories import masked_whole

Start = Callable[..., RunningTrainer]
GROUP_SIZE = 6
LOST = 8
"""Dropped groups at which pacing admits no more before the next step, under the settings below."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def sessions(model: Path) -> list[Trajectory]:
    """Return groups sampled from the initial weights: those to lose, and two batches."""
    return bandit(model, LOST + 8, GROUP_SIZE)


@pytest.fixture
def scheduler(kafka: KafkaSettings) -> Iterator[ScriptedScheduler]:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    scheduler = ScriptedScheduler(kafka)
    yield scheduler
    scheduler.close()


@pytest.fixture
def start(
    kafka: KafkaSettings, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Start:
    def started(**more: object) -> RunningTrainer:
        settings = {"RUN__LAG": 0, "RUN__STEPS": 1, "PACING__REFILL": 1, **more}
        settings["TRAINER__MOST_BARREN_STEPS"] = 1
        for name, value in environment(kafka, model, tmp_path, **settings).items():
            monkeypatch.setenv(name, value)
        return RunningTrainer(TrainerSettings())

    return started


def test_a_run_whose_every_token_is_masked_ends_with_the_reason(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, sessions: list[Trajectory], start: Start
) -> None:
    record_sessions(kafka, [masked_whole(session, "inexact") for session in sessions])
    with pytest.raises(NothingToTrain, match=r"masked as inexact .*policy\.top_p"):
        start().join()
    scheduler.wait_for(lambda: bool(scheduler.records(r.ProgressStalled)))
    (stall,) = scheduler.records(r.ProgressStalled)
    assert stall.detail.startswith("step 1 has nothing to train: ")
    assert not scheduler.records(r.RunFinished)


def test_a_run_goes_on_after_a_step_whose_groups_were_all_filtered(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, sessions: list[Trajectory], start: Start
) -> None:
    alike = [
        replace(session, rewards=(r.Reward(value=1.0),))
        for session in sessions[: LOST * GROUP_SIZE]
    ]
    record_sessions(kafka, alike)
    running = start(TRAINER__FILTERS='{"zero_variance": "drop"}')
    scheduler.wait_for_count(r.StepSkipped, 1)
    record_sessions(kafka, sessions[LOST * GROUP_SIZE :])
    running.join()
    scheduler.wait_for_count(r.RunFinished, 1)
    assert len(scheduler.records(r.StepCompleted)) == 1


def test_a_step_reports_the_masked_tokens_of_groups_that_were_dropped_for_it(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, sessions: list[Trajectory], start: Start
) -> None:
    lost, last = abandoned(sessions[:GROUP_SIZE]), sessions[4 * GROUP_SIZE : 5 * GROUP_SIZE]
    partly = abandoned(sessions[GROUP_SIZE : GROUP_SIZE + 1])
    record_sessions(kafka, [*lost, *partly, *sessions[GROUP_SIZE + 1 : 4 * GROUP_SIZE]])
    running = start(RUN__LAG=1)
    scheduler.wait_for_count(r.GroupDropped, 1)
    record_sessions(kafka, last)
    running.join()
    scheduler.wait_for_count(r.StepCompleted, 1)
    metrics = scheduler.records(r.StepCompleted)[0].metrics
    masked = sum(session.masked_tokens["abandoned"] for session in [*lost, *partly])
    assert metrics["masked/abandoned"] == metrics["tokens_masked"] == masked
    assert metrics["dropped/filtered"] == 1


def abandoned(sessions: list[Trajectory]) -> list[Trajectory]:
    return [masked_whole(session, "abandoned") for session in sessions]
