"""Weights and checkpoints that two ranks write: as one writes them, or an error and none."""

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.gang import RankEnded
from seamlessflow.trainer.backends.sharded.together import RankWriteFailed
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import write_tiny
from tests.integration.trainer.gang.following_rank import settings
from tests.waiting import until

TIMEOUT_S = 120
WEIGHTS = "weights.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@contextmanager
def gang(model: Path) -> Iterator[tuple[FsdpBackend, "subprocess.Popen[bytes]"]]:
    """Yield rank 0 of two, with its initial weights, and the process of the other."""
    way = meeting()
    module = "tests.integration.trainer.gang.following_rank"
    command = [sys.executable, "-m", module, str(model), way.place, "float32"]
    with subprocess.Popen(command) as other:
        try:
            backend = FsdpBackend(model, settings(0, "float32"), way)
            backend.load(None, 0)
            yield backend, other
            backend.close()
        finally:
            other.kill()
            leave_gang()


def no_room(process: "subprocess.Popen[bytes]") -> None:
    """Let a process write no file beyond a hundred bytes."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))


def room(process: "subprocess.Popen[bytes]") -> None:
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, endless)


@pytest.mark.slow
def test_two_ranks_write_what_one_writes_byte_for_byte(model: Path, tmp_path: Path) -> None:
    alone = TorchBackend(model, TrainerSection(device="cpu", threads=1))
    alone.load(None, 0)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with gang(model) as (leader, other):
        for backend, directory in ((alone, tmp_path / "one"), (leader, tmp_path / "two")):
            backend.write_weights(directory)
            backend.snapshot()
            backend.save(directory)
        for _ in range(3):
            leader.rest()
        assert other.wait(TIMEOUT_S) == 0
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names > {WEIGHTS, "optimizer.safetensors", "config.json", "model.safetensors"}
    assert {path.name for path in (tmp_path / "two").iterdir()} == names
    for name in names - {"random.safetensors"}:
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.slow
def test_a_rank_without_room_is_named_and_the_next_checkpoint_is_whole(
    model: Path, tmp_path: Path
) -> None:
    with gang(model) as (leader, other):
        no_room(other)
        leader.snapshot()
        with pytest.raises(RankWriteFailed, match=r"rank 1 .* File too large"):
            leader.save(tmp_path)
        room(other)
        leader.snapshot()
        leader.save(tmp_path)
        leader.load(tmp_path, 1)
        no_room(other)
        # A publication is a call of the gang, which a rank that fails ends.
        with pytest.raises(RankWriteFailed, match=r"rank 1 .* File too large"):
            leader.write_weights(tmp_path)
        assert other.wait(TIMEOUT_S) == 1


@pytest.mark.slow
def test_a_rank_killed_while_it_saves_ends_the_save(model: Path, tmp_path: Path) -> None:
    with gang(model) as (leader, other), ThreadPoolExecutor(1) as pool:
        leader.snapshot()
        leader.rest()
        other.send_signal(signal.SIGSTOP)
        saving = pool.submit(leader.save, tmp_path)
        until((tmp_path / "random.safetensors").exists)
        assert not saving.done()
        other.kill()
        with pytest.raises(RankWriteFailed, match="rank 1 did not write its part"):
            saving.result(TIMEOUT_S)


@pytest.mark.slow
def test_a_rank_killed_in_a_publication_is_named(model: Path, tmp_path: Path) -> None:
    with gang(model) as (leader, other), ThreadPoolExecutor(1) as pool:
        other.send_signal(signal.SIGSTOP)
        writing = pool.submit(leader.write_weights, tmp_path)
        until(writing.running)
        other.kill()
        with pytest.raises(RankEnded, match="rank 1 of the gang ended; all ranks start again"):
            writing.result(TIMEOUT_S)
