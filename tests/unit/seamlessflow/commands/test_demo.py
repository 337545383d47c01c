"""Options of the command `seamlessflow demo`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app


@pytest.mark.parametrize("backend", ["torch", "fsdp2"])
def test_layers_are_divided_by_megatron_alone(backend: str, tmp_path: Path) -> None:
    options = ["--backend", backend, "--ranks", "2", "--tensor-parallel", "2"]
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert "only megatron divides layers" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "option", [("--engine", "vllm"), ("--backend", "fsdp2"), ("--adapter", "4")]
)
def test_a_real_model_is_trained_in_one_way(option: tuple[str, str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["demo", "--real", str(tmp_path), *out, *option])
    assert done.exit_code == 2
    assert "a whole model with torch on one worker" in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_a_model_of_an_earlier_demo_is_not_renamed_away(tmp_path: Path) -> None:
    out = tmp_path / "out"
    model = out / "weights" / "final"
    model.mkdir(parents=True)
    done = CliRunner().invoke(app, ["demo", "--real", str(model), "--out", str(out)])
    assert done.exit_code == 2
    assert "name another --out" in " ".join(done.output.split())
    assert model.is_dir()


@pytest.mark.parametrize(
    "option",
    [
        *(("--real", "a/model"), ("--engine", "vllm"), ("--backend", "fsdp2"), ("--ranks", "2")),
        *(("--tensor-parallel", "2"), ("--adapter", "4")),
    ],
)
def test_a_rehearsal_refuses_what_it_has_no_use_for_by_name(
    option: tuple[str, str], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["demo", "--rehearse", *out, *option])
    assert done.exit_code == 2
    assert f"Invalid value for {option[0]}: a rehearsal has" in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_a_rehearsal_in_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.touch()
    done = CliRunner().invoke(app, ["demo", "--rehearse", "--out", str(file)])
    assert done.exit_code == 2
    assert "Invalid value for --out" in " ".join(done.output.split())
