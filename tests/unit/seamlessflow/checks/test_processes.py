"""Refusals of each process, and the variables that a worker's processes alone have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.run_files import faults, run_values

OWN = "workers[0].environment"


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    monkeypatch.chdir(tmp_path)
    return run_values(tmp_path)


def of_worker(values: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    tags = ["rollout", "train"]
    return {**values, "workers": [{"id": "a", "tags": tags, "environment": environment}]}


@pytest.mark.parametrize(
    "environment",
    [
        {"SEAMLESSFLOW_ROLLOUT__TORCH__DTYPE": "bfloat16"},
        {"SEAMLESSFLOW_ROLLOUT__TORCH": '{"dtype": "bfloat16"}', "CUDA_VISIBLE_DEVICES": "0"},
        {"SEAMLESSFLOW_DATA_DIR": "somewhere/else"},
        {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": "kafka.example:9092"},
    ],
)
def test_a_worker_may_have_variables_of_its_own(
    values: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    assert faults(of_worker(values, environment)) == ()


@pytest.mark.parametrize(
    ("name", "text", "begins", "reason"),
    [
        ("TRAINER__RANK", "1", "trainer.ranks must", "must exceed 1, the last rank of this"),
        (
            "TRAINER__RANK",
            "one",
            f"{OWN}.SEAMLESSFLOW_TRAINER__RANK",
            "Input should be a valid integer",
        ),
        (
            "ROLLOUT__TORCH__DTYPE",
            "bfloat",
            f"{OWN}.SEAMLESSFLOW_ROLLOUT__TORCH__DTYPE",
            "must be one of float32, bfloat16, float16 (got 'bfloat'); did you mean bfloat16?",
        ),
        (
            "ROLLOUT__TORCH",
            '{"threads": 0}',
            f"{OWN}.SEAMLESSFLOW_ROLLOUT__TORCH.threads",
            "Input should be greater than or equal to 1",
        ),
        ("ROLLOUT__TAGS", "rollout", f"{OWN}.SEAMLESSFLOW_ROLLOUT__TAGS", "must be JSON"),
        ("ROLOUT__CAPACITY", "1", OWN, "did you mean SEAMLESSFLOW_ROLLOUT__CAPACITY?"),
    ],
)
def test_a_wrong_variable_of_a_worker_is_named_as_it_was_written(
    values: Mapping[str, Any], name: str, text: str, begins: str, reason: str
) -> None:
    [line] = faults(of_worker(values, {f"SEAMLESSFLOW_{name}": text}))
    assert line.startswith(begins)
    assert reason in line


def test_a_variable_that_is_no_json_is_one_fault(
    values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__MODELS", "policy")
    [line] = faults(values)
    assert line.startswith("SEAMLESSFLOW_GATEWAY__MODELS: must be JSON")
