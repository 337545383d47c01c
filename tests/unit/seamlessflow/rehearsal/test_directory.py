"""The directory of a rehearsal: each begins in an empty one, and nothing else is ever removed."""

from pathlib import Path

import pytest

from seamlessflow.rehearsal.directory import (
    REPORT,
    DirectoryTaken,
    ReportUnreadable,
    begin_in,
    end_in,
    scale_of,
)


def test_a_rehearsal_replaces_an_earlier_one_whole_or_interrupted(tmp_path: Path) -> None:
    out = tmp_path / "rehearsal"
    begin_in(out, 1)
    (out / "metrics.csv").write_text("of the earlier one")
    begin_in(out, 1)
    assert [file.name for file in out.iterdir()] == [REPORT]


def test_a_directory_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DirectoryTaken, match="name an empty directory with --out"):
        begin_in(tmp_path, 1)
    assert (tmp_path / "thesis.tex").exists()


def test_the_scale_is_known_from_beginning_to_end_and_a_run_has_none(tmp_path: Path) -> None:
    begin_in(tmp_path / "rehearsal", 0.2)
    assert scale_of(tmp_path / "rehearsal") == 0.2
    end_in(tmp_path / "rehearsal", {"untrained": None}, 0.2)
    assert scale_of(tmp_path / "rehearsal") == 0.2
    assert scale_of(tmp_path) == scale_of(None) == 1


@pytest.mark.parametrize("text", ["{broken", "[1]", '{"scale": null}'])
def test_a_report_of_another_form_has_no_scale(tmp_path: Path, text: str) -> None:
    (tmp_path / REPORT).write_text(text)
    with pytest.raises(ReportUnreadable, match="its scale is unknown"):
        scale_of(tmp_path)
