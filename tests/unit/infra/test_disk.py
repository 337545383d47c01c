"""Files and directories on disk: whole or not there, on a full disk too, and scratch ones."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from seamlessflow.infra.disk import (
    DiskFull,
    ScratchDirectory,
    check_directory,
    check_file,
    make_writable,
    name_whole,
    room_for,
    whole_directory,
    whole_file,
)
from seamlessflow.infra.errors import ExitStatus, SettingsRejected
from tests.builders.disks.file_limit import largest_file

LIMIT = 1000

KILLED = """
import os, signal, sys
from pathlib import Path
from seamlessflow.infra.disk import ScratchDirectory
made = ScratchDirectory(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "manifest.json"
    target.write_bytes(b"old")
    with whole_file(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["manifest.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "manifest.json"
    target.write_bytes(b"old")
    with pytest.raises(error), whole_file(target) as file:
        file.write(b"half")
        raise error
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["manifest.json"]


def test_the_next_attempt_overwrites_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".manifest.json").write_bytes(b"half of a longer one")
    with whole_file(tmp_path / "manifest.json") as file:
        file.write(b"whole")
    assert (tmp_path / "manifest.json").read_bytes() == b"whole"
    assert names(tmp_path) == ["manifest.json"]


def test_writers_of_a_shared_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "blob"
    with whole_file(target, shared=True) as slow:
        slow.write(b"con")
        with whole_file(target, shared=True) as quick:
            quick.write(b"content")
        assert target.read_bytes() == b"content"
        slow.write(b"tent")
    assert target.read_bytes() == b"content"
    assert names(tmp_path) == ["blob"]


def rest_at_the_end(path: Path) -> None:
    """Write bytes that fit into the buffer, so that closing the file meets the full disk."""
    with whole_file(path) as file:
        file.write(b"x" * (LIMIT + 1))


def more_than_the_buffer(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"x" * (1 << 20))


@pytest.mark.parametrize("write", [rest_at_the_end, more_than_the_buffer])
def test_a_full_disk_is_named_with_what_was_written(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    with largest_file(LIMIT), pytest.raises(DiskFull) as raised:
        write(tmp_path / "manifest.json")
    assert raised.value.path == str(tmp_path / "manifest.json")
    assert 0 <= raised.value.written <= LIMIT < raised.value.free
    assert names(tmp_path) == []


def test_a_draft_that_others_wrote_gets_its_name(tmp_path: Path) -> None:
    draft, target = tmp_path / ".draft", tmp_path / "table"
    draft.write_bytes(b"rows")
    name_whole(draft, target)
    assert target.read_bytes() == b"rows"
    assert names(tmp_path) == ["table"]


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


def test_a_missing_directory_is_made_and_one_that_is_there_kept(tmp_path: Path) -> None:
    for _ in range(2):
        make_writable(tmp_path / "a" / "b", "--to")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", ["", "/more"])
def test_a_file_and_what_is_below_it_are_refused(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SettingsRejected, match=f"--to: {file}{below} is no directory for files"):
        make_writable(Path(f"{file}{below}"), "--to")


@pytest.mark.parametrize("place", ["/proc/x", "/proc"])
def test_a_place_of_the_system_is_refused(place: str) -> None:
    with pytest.raises(SettingsRejected, match=f"--to: {place} is no directory for files: No such"):
        make_writable(Path(place), "--to")


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()

    ScratchDirectory(tmp_path).close()
    assert not left.exists()


def test_directories_of_a_process_that_runs_and_of_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "seamlessflow-other"
    other.mkdir()
    first, second = ScratchDirectory(tmp_path), ScratchDirectory(tmp_path)
    assert first.path.exists()

    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == [other]


def test_a_file_needs_its_directory(tmp_path: Path) -> None:
    check_file("--to", tmp_path / "new.jsonl")
    with pytest.raises(SettingsRejected, match=r"--to: there is no directory .*nodir"):
        check_file("--to", tmp_path / "nodir" / "new.jsonl")
    with pytest.raises(SettingsRejected, match="is a directory"):
        check_file("--to", tmp_path)


def test_a_directory_is_made_with_its_parents_but_not_within_a_file(tmp_path: Path) -> None:
    check_directory("--weights", tmp_path / "one" / "two")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsRejected, match=r"--weights: there is no directory .*file"):
        check_directory("--weights", tmp_path / "file" / "two")
