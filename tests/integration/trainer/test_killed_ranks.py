"""A process of a gang, or its trainer, killed in a load or a publication: nothing is lost."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.versions import versions
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from seamlessflow.trainer.recovery.resume import surviving
from tests.builders.own_topics import small
from tests.builders.trainer.gangs.phases import reads, stopped_in, writes_draft
from tests.builders.trainer.models import bandit, write_large
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.scripted_scheduler import TIMEOUT_S, ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses, further_rank

pytestmark = pytest.mark.soak

STEPS = 3
PASSING = [ExitStatus.PASSING, ExitStatus.PASSING]
BACKENDS: Mapping[str, Mapping[str, object]] = {
    "fsdp2": {"TRAINER__BACKEND": "fsdp2"},
    "megatron": {"TRAINER__BACKEND": "megatron", "TRAINER__MEGATRON__TENSOR_PARALLEL": 2},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def sessions(model: Path) -> list[Trajectory]:
    return bandit(model, 4 * STEPS, 6)


@pytest.fixture
def backend() -> str:
    return "fsdp2"


@pytest.fixture
def env(
    kafka: KafkaSettings, sessions: list[Trajectory], model: Path, tmp_path: Path, backend: str
) -> dict[str, str]:
    """Return the environment of a worker with two devices, each of them a rank."""
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    record_sessions(kafka, sessions)
    more = {
        "RUN__STEPS": STEPS,
        "TRAINER__RANKS": 2,
        "TRAINER__DEVICES": "[0, 1]",
        "TRAINER__CHECKPOINT_EVERY": 1,
        "TRAINER__OPTIMIZER__LR": 0.0001,
    }
    return environment(kafka, model, tmp_path, **more, **BACKENDS[backend])


@pytest.fixture
def scheduler(kafka: KafkaSettings, env: dict[str, str]) -> Iterator[ScriptedScheduler]:
    running = ScriptedScheduler(kafka)
    yield running
    running.close()


def second(processes: TrainerProcesses) -> Callable[[], int | None]:
    return lambda: further_rank(processes.pid(1))


def saved(data: Path) -> list[Path]:
    """Return the checkpoints, oldest first."""
    return sorted((data / "checkpoints").glob("checkpoint-*"))


def stop_publishing(processes: TrainerProcesses, data: Path) -> int:
    """Stop the second rank while it writes a version, behind a checkpoint; return its id."""
    writing = writes_draft(data / "weights")
    return stopped_in(
        lambda process: bool(saved(data)) and writing(process), second(processes), TIMEOUT_S
    )


def assert_nothing_lost(scheduler: ScriptedScheduler, data: Path) -> None:
    """Check a run that has reached its end: its steps, its groups, its versions."""
    scheduler.wait_for_count(r.RunFinished, 1)
    final = surviving(scheduler.records(r.StepCommitted))
    assert [commit.step for commit in final] == list(range(STEPS))
    groups = [group.group_id for commit in final for group in commit.groups]
    assert sorted(groups) == sorted(f"run-{number}" for number in range(4 * STEPS))
    made: dict[int, set[str]] = {}
    for weights in scheduler.records(r.WeightsPublished):
        made.setdefault(weights.step, set()).add(weights.tensors_hash)
    # Steps that were executed again made the same weights.
    assert {step: len(hashes) for step, hashes in made.items()} == dict.fromkeys(
        range(STEPS + 1), 1
    )
    directories = versions(data / "weights")
    assert directories.keys() <= {
        record.version for record in scheduler.records(r.WeightsPublished)
    }
    for version, directory in directories.items():
        assert verify(directory).version == version
    assert not list((data / "weights").glob(".version-*"))


def go_on(env: dict[str, str]) -> None:
    with TrainerProcesses(env) as processes:
        assert processes.wait() == [0, 0]


def test_a_rank_killed_while_it_loads_the_model_ends_all_and_the_run_begins_again(
    env: dict[str, str], scheduler: ScriptedScheduler, model: Path, tmp_path: Path
) -> None:
    with TrainerProcesses(env) as processes:
        reading = reads(model / "model.safetensors")
        os.kill(stopped_in(reading, second(processes), TIMEOUT_S), signal.SIGKILL)
        assert "rank 1 of" in processes.said(1)
        assert "worker w was lost; all ranks start again" in processes.said(0)
        assert processes.wait() == PASSING
    assert not scheduler.records(r.WeightsPublished)
    go_on(env)
    assert_nothing_lost(scheduler, tmp_path)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trainer_killed_while_its_ranks_publish_goes_on_from_the_checkpoint(
    env: dict[str, str], scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    with TrainerProcesses(env) as processes:
        process = stop_publishing(processes, tmp_path)
        os.kill(processes.pid(0), signal.SIGKILL)
        os.kill(process, signal.SIGCONT)
        assert processes.wait() == [-signal.SIGKILL, ExitStatus.PASSING]
    go_on(env)
    assert_nothing_lost(scheduler, tmp_path)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_killed_while_they_publish_and_load_the_checkpoint_lose_nothing(
    env: dict[str, str], scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    with TrainerProcesses(env) as processes:
        process = stop_publishing(processes, tmp_path)
        announced = len(scheduler.records(r.WeightsPublished))
        os.kill(process, signal.SIGKILL)
        # The trainer is told of the rank, or finds its worker gone, which looks after it too.
        assert "all ranks start again" in processes.said(0)
        assert "rank 1 of" in processes.said(1)
        assert processes.wait() == PASSING
    assert not list((tmp_path / "weights").glob(".version-*")), "the trainer deletes its draft"
    assert len(scheduler.records(r.WeightsPublished)) == announced
    with TrainerProcesses(env) as processes:
        reading = reads(saved(tmp_path)[-1] / "weights.safetensors")
        os.kill(stopped_in(reading, second(processes), TIMEOUT_S), signal.SIGKILL)
        assert "all ranks start again" in processes.said(0)
        assert "rank 1 of" in processes.said(1)
        assert processes.wait() == PASSING
    go_on(env)
    assert_nothing_lost(scheduler, tmp_path)
