"""Directories that a user names: made if missing, refused by their option if no file fits there."""

from pathlib import Path

import pytest

from seamlessflow.infra.disk.writable import make_writable
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
