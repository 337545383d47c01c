"""A checkpoint is saved once all ranks have written their parts, and not at all if one has not."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.infra.network.line import Line
from seamlessflow.trainer.backends.sharded.parts import FileParts, part_of
from seamlessflow.trainer.backends.sharded.together import GangSaves, RankWriteFailed
from seamlessflow.trainer.recovery import checkpoint
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin
from tests.builders.trainer.gangs.meetings import line, meeting

LIMIT_S = 120.0
RANKS = 3
FILE = "weights.safetensors"


class Ranks:
    """Three ranks with their snapshots; the first leads."""

    def __init__(self, lines: Sequence[Line], others: Sequence[Line]) -> None:
        self.snapshots = [Queue[FileParts]() for _ in range(RANKS)]
        self.lines = others
        """Those of the other ranks to the first."""
        self.first = GangSaves(lines, self.snapshots[0], True)

    def begin(self, *ranks: int) -> list[GangSaves]:
        """Let other ranks obey."""
        return [GangSaves([self.lines[rank - 1]], self.snapshots[rank], False) for rank in ranks]

    def take(self, value: float, *ranks: int, file: str = FILE) -> None:
        """Take a snapshot of a tensor with so many in each of its rows, on some ranks."""
        for rank in ranks:
            whole = torch.full((RANKS, 4), value)
            rows = replace(part_of(whole), values=whole[rank : rank + 1], first=rank)
            self.snapshots[rank].put({file: {"tensor": rows}})


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with closing(meeting()) as way, ThreadPoolExecutor(1) as pool:
        begun = pool.submit(way.begin, RANKS - 1)
        others = [line(way.place, rank) for rank in range(1, RANKS)]
        lines = begun.result(LIMIT_S)
        for connection in others:
            connection.receive(LIMIT_S)
        yield Ranks(lines, others)
        for connection in (*lines, *others):
            connection.close()


def saved(directory: Path) -> torch.Tensor:
    return load_file(directory / FILE)["tensor"]


def test_a_checkpoint_is_whole_when_it_is_saved(ranks: Ranks, tmp_path: Path) -> None:
    ranks.begin(1, 2)
    ranks.take(1.0, 0, 1, 2)
    ranks.first.save(tmp_path)
    assert torch.equal(saved(tmp_path), torch.full((RANKS, 4), 1.0))


def test_each_checkpoint_is_of_one_snapshot_on_all_ranks(ranks: Ranks, tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        ranks.take(value, 0, 1, 2)
        (tmp_path / f"{value}").mkdir()
    ranks.begin(1, 2)
    for value in (1.0, 2.0):
        ranks.first.save(tmp_path / f"{value}")
        assert torch.equal(saved(tmp_path / f"{value}"), torch.full((RANKS, 4), value))


def test_a_rank_that_is_ordered_to_save_before_its_snapshot_waits_for_it(
    ranks: Ranks, tmp_path: Path
) -> None:
    ranks.begin(1, 2)
    ranks.take(1.0, 0, 2)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(ranks.first.save, tmp_path)
        ranks.take(1.0, 1)
        saving.result(LIMIT_S)
    assert torch.equal(saved(tmp_path), torch.full((RANKS, 4), 1.0))


def test_a_rank_that_cannot_write_is_named_with_its_reason(ranks: Ranks, tmp_path: Path) -> None:
    ranks.begin(1, 2)
    ranks.take(1.0, 0, 1)
    ranks.take(1.0, 2, file="nowhere/weights.safetensors")
    with pytest.raises(RankWriteFailed, match="No such file") as raised:
        ranks.first.save(tmp_path)
    assert (raised.value.rank, raised.value.directory) == (2, str(tmp_path))


def test_the_error_of_the_first_rank_is_raised_as_it_is_once_others_write_no_more(
    ranks: Ranks, tmp_path: Path
) -> None:
    ranks.begin(1, 2)
    ranks.take(1.0, 1, 2)
    ranks.take(1.0, 0, file="nowhere/weights.safetensors")
    with pytest.raises(FileNotFoundError):
        ranks.first.save(tmp_path)
    assert not any(queue.unfinished_tasks for queue in ranks.snapshots)


def written(root: Path, version: int, ranks: Ranks) -> Path:
    content = Checkpoint(Origin(version, version, "a"), {}, ControlState("tiny"), 0, "log")
    return checkpoint.write(root, content, ranks.first.save, 2)


def test_a_rank_that_ends_in_a_save_leaves_the_checkpoint_before_it(
    ranks: Ranks, tmp_path: Path
) -> None:
    ranks.begin(1)
    ranks.begin(2)
    ranks.take(1.0, 0, 1, 2)
    older = written(tmp_path, 1, ranks)
    # The second rank has no snapshot yet, so it is in the middle of this one when it ends.
    ranks.take(2.0, 0, 1)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(written, tmp_path, 2, ranks)
        ranks.lines[1].close()
        with pytest.raises(RankWriteFailed, match="rank 2 did not write"):
            saving.result(LIMIT_S)
    assert [path.name for path in tmp_path.iterdir()] == [older.name]
    newest = checkpoint.newest(tmp_path, "tiny", "log")
    assert newest.origin.version == 1
    ranks.take(2.0, 2)  # lets its thread end


def test_a_rank_that_is_asked_to_end_first_writes_its_part(ranks: Ranks, tmp_path: Path) -> None:
    (second,), _ = ranks.begin(1), ranks.begin(2)
    ranks.take(1.0, 0, 1, 2)
    ending = threading.Thread(target=second.finish, daemon=True)
    ending.start()
    ranks.first.save(tmp_path)
    ending.join(LIMIT_S)
    assert not ending.is_alive()
    assert torch.equal(saved(tmp_path), torch.full((RANKS, 4), 1.0))


def test_a_rank_that_ends_does_not_wait_for_a_first_rank_that_is_gone(ranks: Ranks) -> None:
    (second,) = ranks.begin(1)
    ranks.take(1.0, 1)
    for connection in ranks.lines:
        connection.close()
    ending = threading.Thread(target=second.finish, daemon=True)
    ending.start()
    ending.join(LIMIT_S / 2)
    assert not ending.is_alive()
