"""Files that appear whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seamlessflow.infra.disk.full import DiskFull
from seamlessflow.infra.disk.whole_file import name_whole, whole_file
from tests.builders.disks.file_limit import largest_file

LIMIT = 1000


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
