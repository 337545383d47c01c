"""Hashes of tensors on disk: the same whatever files hold them."""

from pathlib import Path

import numpy as np
import pytest
import xxhash
from safetensors.numpy import save_file

from seamlessflow.infra.weights.tensors import TensorHasher, tensor_hashes, tensors_hash

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


@pytest.mark.parametrize("part", [1, 7, 8, 9, 64, 1000])
def test_hashes_do_not_depend_on_the_parts_in_which_a_file_is_read(
    tmp_path: Path, part: int
) -> None:
    none = np.zeros((0, 3), np.float32)
    save_file({"one": ONE, "none": none, "two": TWO, "nothing": none}, tmp_path / "a.safetensors")
    content, tensors = (tmp_path / "a.safetensors").read_bytes(), TensorHasher()
    for begin in range(0, len(content), part):
        tensors.update(memoryview(content)[begin : begin + part])
    assert tensors.hexdigests() == tensor_hashes(tmp_path)
    assert set(tensors.hexdigests()) == {"one", "none", "two", "nothing"}


def test_hashes_of_tensors_are_those_of_earlier_releases(tmp_path: Path) -> None:
    save_file({"one": ONE}, tmp_path / "a.safetensors")
    expected = xxhash.xxh3_128(b"F32[2, 3]" + ONE.tobytes()).hexdigest()
    assert tensor_hashes(tmp_path) == {"one": expected}


@pytest.mark.parametrize("content", [b"", b"tensors", b"\xff" * 20, b"\x02" + bytes(7) + b"[]"])
def test_a_file_that_is_no_safetensors_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="safetensors"):
        tensor_hashes(tmp_path)


def test_a_file_that_was_cut_short_is_told(tmp_path: Path) -> None:
    save_file({"one": ONE}, tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-1])
    with pytest.raises(ValueError, match="shorter than its header says"):
        tensor_hashes(tmp_path)
