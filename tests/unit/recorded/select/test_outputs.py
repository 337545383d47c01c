"""Paths that a command is to write, checked before it starts."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.select.outputs import check_directory, check_file


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
