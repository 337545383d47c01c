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


def evaluated(out: Path, *rewards: float) -> str:
    """Return the place of an evaluation whose tasks have these rewards, one session each."""
    out.mkdir()
    figures = {"weights": "w", "version": 1, "set": "test", "success": 1.0}
    (out / "evaluation.json").write_text(json.dumps(figures))
    costs = {"turns": [1], "sampled_tokens": [1], "prompt_tokens": [1]}
    with (out / "tasks.jsonl").open("w") as file:
        for number, reward in enumerate(rewards):
            row = {"set": "test", "task_id": f"t{number}", "returns": [reward], **costs}
            file.write(json.dumps(row) + "\n")
    return str(out)


@pytest.mark.parametrize(
    ("least", "status"), [([], 0), (["--fail-below", "-0.5"], 0), (["--fail-below", "-0.49"], 1)]
)
def test_two_results_are_compared_without_a_run_and_a_low_one_ends_with_a_status(
    tmp_path: Path, least: Sequence[str], status: int
) -> None:
    sides = evaluated(tmp_path / "a", 1.0, 1.0), evaluated(tmp_path / "b", 1.0, 0.0)
    done = CliRunner().invoke(app, ["eval", "--compare", *sides, *least])
    assert (done.exit_code, "worse: 1: t1 1 → 0" in done.output) == (status, True)


def test_a_comparison_as_json_has_all_figures(tmp_path: Path) -> None:
    sides = evaluated(tmp_path / "a", 0.0, 1.0), evaluated(tmp_path / "b", 1.0, 1.0)
    done = CliRunner().invoke(app, ["eval", "--json", "--compare", *sides])
    of_set = json.loads(done.stdout)["sets"]["test"]
    assert of_set["passing"]["difference"] == 0.5
    assert of_set["better"] == [{"task_id": "t0", "first": 0.0, "second": 1.0}]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--config"),
        (["--compare", "a", "b", "--version", "3"], "--version"),
        (["--compare", "3", "4"], "version 3 needs --config"),
    ],
)
def test_what_a_comparison_lacks_is_named(arguments: Sequence[str], named: str) -> None:
    done = CliRunner().invoke(app, ["eval", *arguments])
    assert done.exit_code == 2
    assert named in done.output


def test_a_place_without_a_result_is_named(tmp_path: Path) -> None:
    sides = evaluated(tmp_path / "a", 1.0), str(tmp_path)
    done = CliRunner().invoke(app, ["eval", "--compare", *sides])
    assert "has no result of `seamlessflow eval`" in str(done.exception)
