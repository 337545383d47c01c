"""The parts of `scripts/test-gpu`, as far as a CPU can run them: the same code with tiny models."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import steps
from benchmarks.gpu.__main__ import NO_GPU, WRONG
from benchmarks.gpu.part import PARTS, Asked, Unmet, meets
from tests.paths import ROOT

ON_A_CPU = [part for part, module in PARTS.items() if not module.startswith("vllm.")]


def figures(part: str, directory: Path) -> dict[str, Any]:
    asked = Asked("cpu", directory, small=True)
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
