"""The command `seamlessflow simulate` with a strategy of a user's own."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import ExitStatus

FAILING = """
calls = []
def late(snapshot):
    calls.append(snapshot)
    if len(calls) > 30:
        raise RuntimeError("later boom")
    return []
"""


def test_a_strategy_that_fails_in_its_run_is_named_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_later.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--strategy", "failing_later:late", "--strategy", "colocated", "--steps", "3"]
    done = CliRunner().invoke(app, ["simulate", *options])

    assert done.exit_code == ExitStatus.LASTING
    assert done.stderr == (
        "! strategy failing_later:late raised RuntimeError('later boom') "
        "(failing_later.py, line 6)\n"
    )
    assert done.stdout.splitlines()[-1].split()[0] == "colocated"
