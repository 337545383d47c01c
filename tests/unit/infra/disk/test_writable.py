"""Paths that a user names, checked before a command starts: refused by their option."""

from pathlib import Path

import pytest

from seamlessflow.infra.disk.writable import check_directory, check_file, make_writable
from seamlessflow.infra.errors import SettingsRejected


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
