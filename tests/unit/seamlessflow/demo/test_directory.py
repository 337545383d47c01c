"""Names under which earlier runs of the demo are kept."""

from pathlib import Path

from seamlessflow.demo.directory import set_aside


def test_an_earlier_run_is_kept_under_a_number(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    assert set_aside(out) is None
    for number in (1, 2):
        out.mkdir()
        (out / "summary.json").write_text(str(number))
        assert set_aside(out) == tmp_path / f"demo-{number}"
    assert (tmp_path / "demo-1" / "summary.json").read_text() == "1"
    assert not out.exists()
