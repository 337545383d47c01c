"""The parts of `scripts/test-gpu`, as far as a CPU can run them: the same code with tiny models."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import steps
from benchmarks.gpu.__main__ import NO_GPU, WRONG, ended, result
from benchmarks.gpu.part import LIMITS_S, PARTS, Asked, Lacks, Unmet, meets, parts_named, so_far
from benchmarks.gpu.real_run import run as run_real
from benchmarks.gpu.shapes import SHAPES, model_config
from seamlessflow.infra.device_model.model_shape import read_shape
from tests.paths import ROOT

ON_A_CPU = [part for part, module in PARTS.items() if not module.startswith("vllm.")]


def figures(part: str, directory: Path) -> dict[str, Any]:
    asked = Asked("cpu", directory, small=True, part=part)
    return dict(import_module(f"benchmarks.gpu.{PARTS[part]}").run(asked))


@pytest.mark.slow
@pytest.mark.parametrize("part", ON_A_CPU)
def test_a_part_runs_on_a_cpu_and_its_figures_are_json(part: str, tmp_path: Path) -> None:
    measurement = figures(part, tmp_path)
    assert measurement and json.loads(json.dumps(measurement)) == measurement


def test_parts_are_the_modules_that_can_run() -> None:
    folder = Path(steps.__file__).parent
    parts = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\ndef run(" in path.read_text()
    }
    assert parts == set(PARTS.values())


def test_the_page_names_all_parts_in_their_order() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \|", (ROOT / "docs" / "gpu.md").read_text(), re.M)
    assert rows[: len(PARTS)] == list(PARTS)


def test_a_name_stands_for_all_parts_that_go_on_behind_it() -> None:
    assert parts_named("shapes") == list(SHAPES)
    assert parts_named("real") == ["real"]
    assert parts_named("shape") == []
    assert LIMITS_S.keys() <= PARTS.keys()


@pytest.mark.parametrize(
    ("part", "parameters", "tokens_bytes"),
    [
        ("shapes-1.5b", 1_543_714_304, 28_672),
        ("shapes-4b", 4_022_468_096, 147_456),
        ("shapes-8b", 8_190_735_360, 147_456),
    ],
)
def test_a_shape_has_the_parameters_of_its_model(
    part: str, parameters: int, tokens_bytes: int, tmp_path: Path
) -> None:
    model_config(part, small=False).save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert shape.parameters == parameters
    assert shape.layer is not None
    assert 2 * 2 * shape.layer.count * shape.layer.key_width == tokens_bytes


def test_what_was_measured_stays_when_the_time_of_a_part_is_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    so_far({"sampling": 1})
    so_far({"sampling": 1, "update": 2})
    lines = [*capsys.readouterr().out.splitlines(), "no JSON"]
    outcome = result("shapes-8b", None, lines, 240.0)
    assert outcome["figures"] == {"sampling": 1, "update": 2}
    assert (outcome["status"], outcome["reason"]) == ("failed", "took more than 240 s")


def test_a_part_that_breaks_is_failed_with_its_last_lines_and_what_it_had_measured() -> None:
    outcome = result("weights", 1, ['{"figures": {"mib": 3}}'], 60.0)
    assert (outcome["part"], outcome["status"]) == ("weights", "failed")
    assert outcome["figures"] == {"mib": 3}
    assert "ended with status 1" in str(outcome["reason"])


def test_a_program_that_takes_too_long_ends_with_what_it_started() -> None:
    waiting = "import signal, sys; print('waits', flush=True); signal.pause()"
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waiting!r}])"
    assert ended([sys.executable, "-c", starting], 3.0) == (None, ["waits"])


def test_a_part_without_time_is_skipped_and_says_so() -> None:
    done = asked("--device", "cpu", "--small", "--minutes", "0.01", "parity", "shapes")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["part"] for report in reports] == ["parity", *SHAPES]
    assert {report["reason"] for report in reports} == {"no time is left"}
    assert done.returncode == 0


def test_without_a_real_model_its_part_says_what_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_CACHE", str(tmp_path))
    with pytest.raises(Lacks, match=r"scripts/real-model makes .*SmolLM2.*or name another"):
        run_real(Asked("cpu", tmp_path, small=False, part="real"))


def test_a_directory_without_a_model_is_told_before_a_part_runs(tmp_path: Path) -> None:
    done = asked("--device", "cpu", "--model", str(tmp_path), "real")
    assert (done.returncode, done.stdout) == (WRONG, "")
    assert f"{tmp_path} holds no model" in done.stderr


def test_a_figure_that_is_not_as_it_must_be_is_told_with_the_others() -> None:
    with pytest.raises(Unmet, match=r'too slow: \{"seconds": 3\}'):
        meets(False, "too slow", {"seconds": 3})


@pytest.mark.slow
@pytest.mark.parametrize("part", [pytest.param("vllm", marks=pytest.mark.soak), "throughput"])
def test_a_part_that_lacks_something_is_skipped_and_says_what(part: str, tmp_path: Path) -> None:
    missing = tmp_path / "python"
    environment = {**os.environ, "SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON": str(missing)}
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--small", part]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["part"], report["status"]) == (part, "skipped")
    assert report["reason"] == f"lacks vLLM: there is no {missing}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_run_and_the_status_says_so() -> None:
    done = asked()
    assert done.returncode == NO_GPU
    assert "no GPU that torch can use" in done.stderr
    assert done.stdout == ""


def test_results_that_cannot_be_written_are_told_before_a_part_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = asked("--device", "cpu", "--small", "--out", str(file / "results"), "parity")
    assert (done.returncode, done.stdout) == (WRONG, "")
    assert f"nothing can be written to {file / 'results'}" in done.stderr


def test_a_device_that_torch_does_not_know_is_told_before_a_part_runs() -> None:
    done = asked("--device", "gpu", "parity")
    assert (done.returncode, done.stdout) == (NO_GPU, "")
    assert "torch cannot use the device gpu" in done.stderr


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return how `scripts/test-gpu` ended."""
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
