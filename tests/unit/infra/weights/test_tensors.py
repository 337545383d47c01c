"""Hashes of tensors on disk: the same whatever files hold them."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from infra.weights.tensors import tensor_hashes, tensors_hash

ONE, TWO = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float32)


def test_tensors_count_and_not_the_files_that_hold_them(tmp_path: Path) -> None:
    together, apart = tmp_path / "together", tmp_path / "apart"
    together.mkdir()
    apart.mkdir()
    save_file({"one": ONE, "two": TWO}, together / "model.safetensors", {"made": "here"})
    save_file({"two": TWO}, apart / "a.safetensors")
    save_file({"one": ONE}, apart / "b.safetensors")
    assert tensors_hash(together) == tensors_hash(apart)
    save_file({"one": ONE.reshape(3, 2)}, apart / "b.safetensors")
    assert tensors_hash(together) != tensors_hash(apart)
    before, after = tensor_hashes(together), tensor_hashes(apart)
    assert [name for name in before if before[name] != after[name]] == ["one"]
