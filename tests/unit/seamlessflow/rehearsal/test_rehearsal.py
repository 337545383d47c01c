"""The directory of a rehearsal: each begins in an empty one, and nothing else is ever removed."""

from pathlib import Path

import pytest

from seamlessflow.rehearsal.rehearsal import REPORT, DirectoryTaken, begin_in


def test_a_rehearsal_replaces_an_earlier_one_whole_or_interrupted(tmp_path: Path) -> None:
    out = tmp_path / "rehearsal"
    begin_in(out)
    (out / "metrics.csv").write_text("of the earlier one")
    begin_in(out)
    assert [file.name for file in out.iterdir()] == [REPORT]


def test_a_directory_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DirectoryTaken, match="name an empty directory with --out"):
        begin_in(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
