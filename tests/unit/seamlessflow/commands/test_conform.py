"""The command `seamlessflow conform`, on the example."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.lab.conformance.environment_process import EnvironmentFailed
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "conformance"
PLAIN, BY_TABLE = "grid:Grid", "grid_by_table:GridByTable"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)


def test_equal_implementations_pass_as_the_page_shows() -> None:
    done = CliRunner().invoke(app, ["conform", PLAIN, BY_TABLE])
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.fullmatch(r"equal: 100 episodes, [\d,]+ steps\n", done.stdout)
    assert f"\n```\n{done.stdout}```\n" in (ROOT / "docs" / "conformance.md").read_text()


def test_a_planted_difference_is_located_and_the_status_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (EXAMPLE / "grid_by_table.py").read_text()
    (tmp_path / "grid.py").write_text((EXAMPLE / "grid.py").read_text())
    wrong = text.replace("return self.seen(), 1.0 if home else -0.01", "return self.seen(), 0.5")
    (tmp_path / "wrong.py").write_text(wrong)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["conform", PLAIN, "wrong:GridByTable", "--first", "4"])
    assert done.exit_code == 1
    shown = done.stdout.splitlines()
    assert shown[:3] == [
        "seed 4, step 1: reward differs",
        "  grid:Grid          -0.01",
        "  wrong:GridByTable  0.5",
    ]
    assert shown[-2:] == ["0 episodes before it are equal", "again: --first 4 --seeds 1"]


def test_what_cannot_be_compared_ends_the_command_with_its_reason() -> None:
    done = CliRunner().invoke(app, ["conform", PLAIN, "grid:Missing"])
    assert isinstance(done.exception, EnvironmentFailed)
    assert "module grid has no function Missing" in str(done.exception)


def test_what_an_environment_prints_is_shown_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (EXAMPLE / "grid.py").read_text()
    loud = text.replace("self.steps += 1", "self.steps += 1; print('hello')", 1)
    (tmp_path / "loud.py").write_text(loud)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["conform", "loud:Grid", "loud:Grid", "--seeds", "1"])
    assert done.exit_code == 0
    assert done.stderr.startswith("loud:Grid printed: hello")
    assert done.stdout.startswith("equal: 1 episodes")
