"""Workers with several devices: a rank on each, all of them in one gang, on a real broker."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from tests.builders.own_topics import small
from tests.builders.trainer.models import bandit, bandit_return, write_family
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model whose heads two ranks of a layer can share."""
    return write_family(tmp_path_factory.mktemp("tiny"), "qwen3")


@pytest.fixture(scope="module")
def sessions(model: Path) -> list[Trajectory]:
    """Return 12 groups sampled from the initial weights."""
    return bandit(model, 12, 6)


@pytest.fixture
def log(kafka: KafkaSettings) -> KafkaSettings:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    return kafka


def gang(
    kafka: KafkaSettings, model: Path, data: Path, ranks: int, **options: str | int
) -> dict[str, str]:
    """Return the environment of three steps of a gang."""
    options = {"BACKEND": "fsdp2", "RANKS": ranks, **options}
    more = {f"TRAINER__{name}": value for name, value in options.items()}
    return environment(kafka, model, data, RUN__STEPS=3, **more)


@pytest.mark.slow
def test_workers_with_several_devices_train_as_a_gang(
    log: KafkaSettings, sessions: list[Trajectory], model: Path, tmp_path: Path
) -> None:
    record_sessions(log, sessions)
    env = gang(log, model, tmp_path, 3)
    # Two devices and one.
    workers = [
        {"SEAMLESSFLOW_TRAINER__WORKER": "w0", "SEAMLESSFLOW_TRAINER__DEVICES": "[0, 1]"},
        {"SEAMLESSFLOW_TRAINER__WORKER": "w1", "SEAMLESSFLOW_TRAINER__RANK": "2"},
    ]
    scheduler = ScriptedScheduler(log, ["w0", "w1"])
    try:
        with TrainerProcesses(env, workers) as processes:
            assert processes.wait() == [0, 0, 0]
        scheduler.wait_for_count(r.RunFinished, 1)
    finally:
        scheduler.close()
    completed = scheduler.records(r.StepCompleted)
    assert [record.version for record in completed] == [1, 2, 3]
    assert completed[0].metrics["mismatch_max"] < 1e-4
    assert {record.worker for record in scheduler.records(r.RoleReleased)} == {"w0", "w1"}
    for worker in ("w0", "w1"):
        usage = [record for record in scheduler.records(r.WorkerUsage) if record.worker == worker]
        own_ms = [record.computing_ms or 0 for record in usage]
        assert 0 < sum(own_ms) < sum(record.training_ms for record in usage), (
            "tokens, commits, others"
        )
    last = Path(scheduler.records(r.WeightsPublished)[-1].directory)
    assert bandit_return(last) > bandit_return(model)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.soak, id="fsdp2"),
        pytest.param({"BACKEND": "megatron"}, marks=pytest.mark.soak, id="megatron-data"),
        pytest.param({"BACKEND": "megatron", "MEGATRON__TENSOR_PARALLEL": 2}, id="megatron-tensor"),
    ],
)
def test_the_end_of_a_further_rank_ends_all_and_the_run_goes_on(
    log: KafkaSettings,
    sessions: list[Trajectory],
    model: Path,
    tmp_path: Path,
    options: dict[str, str | int],
) -> None:
    record_sessions(log, sessions)
    env = gang(log, model, tmp_path, 2, **options) | {"SEAMLESSFLOW_TRAINER__DEVICES": "[0, 1]"}
    scheduler = ScriptedScheduler(log)
    try:
        with TrainerProcesses(env) as processes:
            scheduler.wait_for_count(r.StepCommitted, 1)
            assert processes.kill_further_rank(1) == [ExitStatus.PASSING, ExitStatus.PASSING]
        with TrainerProcesses(env) as processes:
            assert processes.wait() == [0, 0]
        scheduler.wait_for_count(r.RunFinished, 1)
    finally:
        scheduler.close()
    lives = {record.incarnation for record in scheduler.records(r.RoleAcquired)}
    assert len(lives) == 2
    assert max(record.step for record in scheduler.records(r.StepCompleted)) == 2
