"""Errors of a full disk: the path, the bytes and the room left; nothing half-written stays."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from seamlessflow.infra.disk.full import DiskFull, room_for
from seamlessflow.infra.disk.whole_directory import whole_directory
from seamlessflow.infra.errors import ExitStatus
from tests.builders.disks.file_limit import largest_file

LIMIT = 1000


def by_python(path: Path) -> None:
    path.write_bytes(b"x" * (LIMIT + 1))


def by_safetensors(path: Path) -> None:
    save_file({"w": torch.zeros(LIMIT)}, path)


@pytest.mark.parametrize("write", [by_python, by_safetensors])
def test_a_directory_without_room_is_named_and_leaves_the_old_one(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    target = tmp_path / "v1"
    with whole_directory(target, sync=False) as draft:
        (draft / "old").write_text("whole")
    with (
        largest_file(LIMIT),
        pytest.raises(DiskFull, match=re.escape(f"no space for {target}:")) as raised,
        whole_directory(target, sync=False) as draft,
    ):
        write(draft / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["v1", "old"]
    assert 0 <= raised.value.written <= LIMIT < raised.value.free
    assert raised.value.process_status(ready=True) is ExitStatus.PASSING


def test_another_error_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), room_for(tmp_path / "a", tmp_path / "b"):
        (tmp_path / "missing").read_text()
