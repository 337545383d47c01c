"""The command `seamlessflow shapley`."""

import re
from pathlib import Path

from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.reports.shapley import CombinationsMissing
from tests.paths import ROOT


def test_values_and_their_sum_are_printed(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.jsonl"
    first.write_text("modules,score\nnone,0.25\nact,0.5\nplan,0.25\n")
    second.write_text('{"modules": "act+plan", "score": 1}\n{"modules": "plan", "reward": null}\n')
    done = CliRunner().invoke(app, ["shapley", str(first), str(second)])
    assert done.stdout.splitlines() == [
        "act   +0.5000",
        "plan  +0.2500",
        "sum   +0.7500 = 1.0000 (all) - 0.2500 (none)",
        "1 sessions without a reward are left out",
    ]


def test_a_missing_combination_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("modules,score\nnone,0.25\nact+plan,0.5\nplan,0.25\n")
    done = CliRunner().invoke(app, ["shapley", str(file)])
    assert isinstance(done.exception, CombinationsMissing)
    assert "act" in str(done.exception)


def test_the_example_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trainer" / "evaluations.md").read_text()
    ((scores, printed),) = re.findall(
        r"^```\n(modules,score\n.*?)^```\n\n```\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    file = tmp_path / "scores.csv"
    file.write_text(scores)
    assert CliRunner().invoke(app, ["shapley", str(file)]).stdout == printed
