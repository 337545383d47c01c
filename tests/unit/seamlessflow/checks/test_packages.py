"""Packages of optional extras, and of storages."""

import sys
from pathlib import Path

import pytest

from seamlessflow.checks.packages import ExtraMissing, require, training_faults
from seamlessflow.config_file import parse
from seamlessflow.infra.faults import Fault


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    require("schemas", "schemas")
    with pytest.raises(ExtraMissing, match=r"not installed: pyarro; .*seamlessflow\[parquet\]"):
        require("parquet", "schemas", "pyarro")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("s4://bucket/run", "Protocol not known: s4"), ("s3://bucket/run", "Install s3fs")],
)
def test_a_storage_that_cannot_be_used_is_named_before_the_start(url: str, reason: str) -> None:
    [fault] = of_weights(url)
    assert fault.path == ("weights", "url")
    assert reason in fault.text


@pytest.mark.parametrize("url", ["file:///mnt/weights", "/mnt/weights", "memory://weights"])
def test_a_storage_that_is_there_is_not_asked_before_the_start(url: str) -> None:
    assert of_weights(url) == []


def of_weights(url: str) -> list[Fault]:
    faults = training_faults(parse({"weights": {"url": url}}))
    return [fault for fault in faults if fault.path[:1] == ("weights",)]


def test_a_python_of_the_server_must_be_a_program_that_has_vllm(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("no program")
    assert of_vllm(tmp_path) == [f"there is no program {tmp_path}"]
    assert of_vllm(tmp_path / "python") == [f"there is no program {tmp_path / 'python'}"]
    assert of_vllm(Path(sys.executable)) == [f"{sys.executable} has no package vllm"]
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o700)
    assert of_vllm(tmp_path / "python") == []


def test_no_python_is_asked_for_a_server_that_runs_already(tmp_path: Path) -> None:
    assert of_vllm(tmp_path, url="http://127.0.0.1:8000") == []


def of_vllm(python: Path, **more: str) -> list[str]:
    """Return the beginnings of what is wrong with a Python for vLLM."""
    faults = training_faults(
        parse({"rollout": {"engine": "vllm", "vllm": {"python": python, **more}}})
    )
    named = [fault.text for fault in faults if fault.path == ("rollout", "vllm", "python")]
    return [text.partition(";")[0].partition(": ")[0] for text in named]
