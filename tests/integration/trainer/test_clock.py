"""A rehearsed training on a real broker: no device computes, everything else is as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.recovery.resume import surviving
from tests.builders.own_topics import small
from tests.builders.records import control
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses
from tests.builders.trainer.trajectories import one_turn

GROUPS = ("run-0", "run-1")
GANG = {"TRAINER__BACKEND": "clock", "TRAINER__RANKS": 3}
FIRST = {"SEAMLESSFLOW_TRAINER__WORKER": "w0", "SEAMLESSFLOW_TRAINER__DEVICES": "[0, 1]"}
"""Two devices in one process."""
SECOND = {"SEAMLESSFLOW_TRAINER__WORKER": "w1", "SEAMLESSFLOW_TRAINER__RANK": "2"}


@pytest.fixture
def scheduler(kafka: KafkaSettings) -> Iterator[ScriptedScheduler]:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    scheduler = ScriptedScheduler(kafka, ["w0", "w1"])
    yield scheduler
    scheduler.close()


def two_steps(kafka: KafkaSettings, data: Path) -> dict[str, str]:
    """Record the sessions of two steps; return the environment of a gang that trains them."""
    model = data / "model"
    make_tokenizer(model)
    record_sessions(
        kafka,
        [
            one_turn(
                session_id(group, sample, 0),
                float(sample),
                version=0,
                group=group,
                sample=sample,
                group_size=2,
            )
            for group in GROUPS
            for sample in range(2)
        ],
    )
    modelled = '{"model": "Qwen3-8B", "step_s": 10, "scale": 0.1}'
    run = {"RUN__STEPS": 2, "RUN__GROUPS_PER_STEP": 1, "TRAINER__CHECKPOINT_EVERY": 1}
    return environment(kafka, model, data, DEVICE_MODEL=modelled, **run, **GANG)


@pytest.mark.slow
def test_a_gang_of_clocks_resumes_after_a_kill_and_trains_each_group_once(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    env = two_steps(kafka, tmp_path)
    workers = [FIRST, SECOND]
    with TrainerProcesses(env, workers) as processes:
        scheduler.wait_for_count(r.StepStarted, 2)
        assert processes.kill(2) == [ExitStatus.PASSING] * 2
    with TrainerProcesses(env, workers) as processes:
        assert processes.wait() == [0, 0, 0]
    scheduler.wait_for_count(r.RunFinished, 1)
    final = surviving(scheduler.records(r.StepCommitted))
    assert [commit.step for commit in final] == [0, 1]
    assert sorted(group.group_id for commit in final for group in commit.groups) == [*GROUPS]
    weights = {record.version: record for record in scheduler.records(r.WeightsPublished)}
    versions = (0, *(commit.version for commit in final))
    assert len({weights[version].tensors_hash for version in versions}) == 3
    for commit in final:
        published = weights[commit.version]
        manifest = verify(Path(published.directory), published.manifest_sha256)
        assert (manifest.version, manifest.optimizer_step) == (commit.version, commit.step + 1)
    completed = scheduler.records(r.StepCompleted)[-1]
    assert completed.metrics["modelled_s"] > 10
    assert completed.metrics.keys().isdisjoint({"loss", "grad_norm"})
    assert scheduler.records(r.WorkerHeartbeat)[-1].hardware["peak_flops"] == 989e12


@pytest.mark.slow
def test_a_worker_with_other_settings_is_refused_by_the_gang_and_says_which(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    make_tokenizer(model)
    env = environment(kafka, model, tmp_path, **GANG)
    other = {**SECOND, "SEAMLESSFLOW_TRAINER__SEED": "7"}
    with TrainerProcesses(env, [FIRST, other]) as processes:
        assert "trainer.seed is 7, not 0" in processes.said(2)
        assert processes.status(2) == ExitStatus.LASTING


@pytest.mark.slow
def test_a_worker_that_started_again_before_the_gang_met_breaks_nothing(
    kafka: KafkaSettings, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    with TrainerProcesses(two_steps(kafka, tmp_path), [FIRST]) as processes:
        scheduler.wait_for(
            lambda: any(heartbeat.rendezvous for heartbeat in scheduler.records(r.WorkerHeartbeat))
        )
        scheduler.send(control.joined("w1", process="train", incarnation="refused"))
        scheduler.send(control.lost("w1", "train", incarnation="refused", epoch=1))
        processes.start(SECOND)
        assert processes.status(1) == 0, processes.said(1)
        assert processes.wait() == [0, 0, 0]
