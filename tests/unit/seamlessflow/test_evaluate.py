"""The command `seamlessflow eval` refuses what cannot be evaluated before it starts anything."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from tests.builders.run_files import run_values


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a configuration that can be trained."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(run_values(tmp_path), default=str))))
    return file


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--weights", "nope", "--tasks", "tasks.jsonl"],
            ["weights: there is no directory nope"],
        ),
        (["--version", "7", "--tasks", "tasks.jsonl"], ["out: version 7 is not in "]),
        (
            ["--weights", "nope", "--tasks", "neither"],
            ["tasks: neither: No such file", "weights: there is no directory nope"],
        ),
        ([], ["evaluation.tasks: no file of tasks is named"]),
    ],
)
def test_what_cannot_be_evaluated_is_named_and_nothing_is_started(
    config: Path, arguments: Sequence[str], lines: Sequence[str]
) -> None:
    done = CliRunner().invoke(app, ["eval", "--config", str(config), *arguments])
    _, *reasons = str(done.exception).splitlines()
    for line, begin in zip(reasons, lines, strict=True):
        assert line.strip().startswith(begin)
    assert not (config.parent / "out").exists()


@pytest.mark.parametrize("temperature", ["0.001", "-1", "3", "warm"])
def test_a_temperature_at_which_no_engine_samples_is_refused(
    config: Path, temperature: str
) -> None:
    arguments = ["eval", "--config", str(config), "--temperature", temperature]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "--temperature" in done.output
