"""Stand-ins for weights: those of a small model, else a single tensor."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save, save_file

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.clock.stand_in import MOST_BYTES, WEIGHTS, stand_in


def test_of_a_small_model_one_value_changes_by_a_little(tmp_path: Path) -> None:
    values = np.linspace(1, 2, 6, dtype=np.float32)
    save_file({"a": values, "b": values}, tmp_path / WEIGHTS)
    found = stand_in(tmp_path)
    assert found.dtype == "float32"
    assert found.after(0) == found.initial
    changed = load(found.after(3))
    assert (changed["b"] == values).all()
    assert np.flatnonzero(changed["a"] != values).tolist() == [0]
    assert changed["a"] == pytest.approx(values, rel=1e-5)
    assert found.after(3) != found.after(4)


def test_no_weights_and_large_ones_are_a_single_tensor(tmp_path: Path) -> None:
    assert load(stand_in(tmp_path).after(7))["stand_in"].tolist() == [7]
    for weights in ({}, {"a": np.zeros(MOST_BYTES, np.uint8)}):
        (tmp_path / WEIGHTS).write_bytes(save(weights))
        assert load(stand_in(tmp_path).after(7))["stand_in"].tolist() == [7]


def test_a_file_that_is_no_safetensors_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelUnusable, match="cannot be read"):
        stand_in(tmp_path)
