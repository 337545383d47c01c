"""Facts about a model, from its directory."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seamlessflow.producers.rollout.engine.errors import WeightsRejected
from seamlessflow.producers.rollout.vllm_engine.model import keep, read_model, require_same

TENSORS = {"a": np.zeros((2, 3), "f4"), "b": np.zeros(4, "f4")}


def saved(directory: Path, config: object = None, **tensors: np.ndarray) -> Path:
    directory.mkdir()
    text = json.dumps(config or {"vocab_size": 7, "dtype": "bfloat16"})
    (directory / "config.json").write_text(text)
    save_file(tensors or TENSORS, directory / "model.safetensors")
    return directory


def test_the_facts_of_a_model(tmp_path: Path) -> None:
    model = read_model(saved(tmp_path / "m"))
    assert (model.vocabulary, model.dtype) == (7, "bfloat16")
    assert model.shapes == {"a": (2, 3), "b": (4,)}


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"vocab_size": 7, "torch_dtype": "float16"}, "float16"),
        ({"vocab_size": 7}, "float32"),
        ({"text_config": {"vocab_size": 7, "dtype": "bfloat16"}}, "bfloat16"),
    ],
)
def test_configurations_of_several_kinds(tmp_path: Path, config: object, dtype: str) -> None:
    model = read_model(saved(tmp_path / "m", config))
    assert (model.vocabulary, model.dtype) == (7, dtype)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_directory_without_a_file_is_rejected(tmp_path: Path, name: str) -> None:
    directory = saved(tmp_path / "m")
    (directory / name).unlink()
    with pytest.raises(WeightsRejected):
        read_model(directory)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"a": TENSORS["a"]}, "missing tensors: b"),
        ({**TENSORS, "c": TENSORS["b"]}, "unknown tensors: c"),
        ({"a": TENSORS["a"], "b": np.zeros(5, "f4")}, r"b has the shape \[5\]"),
    ],
)
def test_tensors_of_another_model_are_rejected(
    tmp_path: Path, tensors: dict[str, np.ndarray], reason: str
) -> None:
    model = read_model(saved(tmp_path / "m"))
    with pytest.raises(WeightsRejected, match=reason):
        require_same(saved(tmp_path / "other", **tensors), model)
    require_same(saved(tmp_path / "same"), model)


def test_what_is_kept_outlives_its_directory(tmp_path: Path) -> None:
    directory, kept = saved(tmp_path / "m"), tmp_path / "kept"
    facts = read_model(directory)
    saved(kept, b=TENSORS["b"])
    keep(directory, kept)
    for file in directory.iterdir():
        file.unlink()
    assert read_model(kept) == facts
