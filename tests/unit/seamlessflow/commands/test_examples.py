"""Configurations of `examples/`, as a user would look at them before a run."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from tests.builders.run_files import model_headers
from tests.paths import ROOT

HARDWARE = {"kubernetes": "64xH100-80GB", "slurm": "16xH100-80GB"}
"""Devices that an example is for."""
EXAMPLES = [ROOT / "examples" / name / "run.yaml" for name in HARDWARE]


def run(command: str, *options: object) -> Result:
    return CliRunner().invoke(app, [command, *map(str, options)])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_fits_the_devices_that_it_is_for(example: Path, tmp_path: Path) -> None:
    model, devices = model_headers(tmp_path / "model"), HARDWARE[example.parent.name]
    done = run("plan", "--config", example, "--model", model, "--devices", devices)

    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "DOES NOT FIT" not in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_simulated_with_its_own_workers_and_model(
    example: Path, tmp_path: Path
) -> None:
    text = example.read_text().replace("/shared/models/policy", str(model_headers(tmp_path / "m")))
    config = tmp_path / "run.yaml"
    config.write_text(text)
    done = run("simulate", "--config", config, "--strategy", "colocated", "--steps", 3)

    workers, model, _, line = done.stdout.splitlines()
    assert workers.startswith("the run's own workers: ")
    assert "(policy.model)" in model
    assert (done.exit_code, line.split()[0]) == (0, "colocated")


def test_each_example_of_several_hosts_is_looked_at() -> None:
    files = (ROOT / "examples").glob("*/run.yaml")
    assert {file.parent.name for file in files if "node: " in file.read_text()} == set(HARDWARE)
