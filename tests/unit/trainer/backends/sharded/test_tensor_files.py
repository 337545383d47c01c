"""Files that ranks write each its rows of: as `save_file` and `save_pretrained` write them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.infra.weights.tensors import tensor_hashes
from seamlessflow.trainer.backends.model import load_model, write_model
from seamlessflow.trainer.backends.sharded.parts import TensorPart, TensorParts, part_of, read_part
from seamlessflow.trainer.backends.sharded.tensor_files import (
    MOST_ELEMENTS,
    model_files,
    write_tensors,
)
from seamlessflow.trainer.parallelism import Dtype
from tests.builders.disks.file_limit import largest_file
from tests.builders.models import config, model, random_model, saved


def rows(whole: PreTrainedModel, rank: int) -> TensorParts:
    """Return the rows of one of two ranks."""
    rank_parts = {}
    for name, tensor in whole.state_dict().items():
        each = -(-len(tensor) // 2)
        values = tensor[rank * each : (rank + 1) * each]
        rank_parts[name] = replace(part_of(tensor), values=values, first=rank * each)
    return rank_parts


def written(whole: PreTrainedModel, dtype: Dtype, directory: Path, most_bytes: int) -> None:
    directory.mkdir()
    files = model_files(whole, dtype, most_bytes)
    assert files is not None
    for rank in (1, 0):
        files.write(directory, rows(whole, rank), rank == 0)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "gemma2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("most_bytes", [50_000, 5_000_000])
def test_the_directory_is_that_of_one_rank_byte_for_byte(
    kind: str, dtype: Dtype, most_bytes: int, tmp_path: Path
) -> None:
    whole = load_model(saved(model(kind), tmp_path / "model"), "float32")
    written(whole, dtype, tmp_path / "all", most_bytes)
    halves = {name: tensor.to(getattr(torch, dtype)) for name, tensor in whole.state_dict().items()}
    whole.save_pretrained(tmp_path / "one", state_dict=halves, max_shard_size=most_bytes)
    write_model(whole, {}, dtype, tmp_path / "configuration")
    of_one = {path.name for path in (tmp_path / "one").iterdir()}
    assert {path.name for path in (tmp_path / "all").iterdir()} == of_one
    assert len(of_one) > 4 or most_bytes > 50_000
    for name in of_one:
        where = "configuration" if name == "config.json" else "one"
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / where / name).read_bytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tied_tensors_are_written_once_and_loaded_alike(dtype: Dtype, tmp_path: Path) -> None:
    whole = load_model(saved(model(tied=True), tmp_path / "model"), "float32")
    written(whole, dtype, tmp_path / "all", 5_000_000)
    assert tensor_hashes(tmp_path / "all").keys() == tensor_hashes(tmp_path / "model").keys()
    write_model(whole, whole.state_dict(), dtype, tmp_path / "one")
    reference, other = (
        AutoModelForCausalLM.from_pretrained(tmp_path / directory, dtype="auto")
        for directory in ("one", "all")
    )
    assert reference.dtype == other.dtype == getattr(torch, dtype)
    for left, right in zip(reference.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_model_whose_files_have_other_tensors_cannot_be_written_by_rows(tmp_path: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    mixture = random_model(config("qwen3_moe", **experts))
    whole = load_model(saved(mixture, tmp_path / "model"), "float32")
    assert model_files(whole, "float32") is None


WHOLE_NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
TYPES = (*WHOLE_NUMBERS, "float16", "bfloat16", "float32", "float64")
SHAPES = {"b": (7, 3), "a": (5,), "größe": (1, 4), "none": (0, 2), "deep": (4, 3, 2)}


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    whole = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    whole["step"] = torch.tensor(3.0)
    return whole


def parts(whole: dict[str, torch.Tensor], rank: int, ranks: int, dimension: int = 0) -> TensorParts:
    """Return a rank's part of each tensor, divided in a dimension if it has that."""
    rank_parts: dict[str, TensorPart] = {}
    for name, tensor in whole.items():
        rank_parts[name] = part = part_of(tensor)
        if tensor.dim() > dimension:
            each = -(-tensor.shape[dimension] // ranks)
            first = min(rank * each, tensor.shape[dimension])
            count = min(each, tensor.shape[dimension] - first)
            values = tensor.narrow(dimension, first, count)
            rank_parts[name] = replace(part, values=values, dimension=dimension, first=first)
    return rank_parts


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_bytes_are_those_of_a_file_of_whole_tensors(
    ranks: int, dimension: int, tmp_path: Path
) -> None:
    whole = tensors()
    save_file(
        {name: tensor.clone() for name, tensor in whole.items()}, tmp_path / "one", {"format": "pt"}
    )
    # The order in which ranks come does not matter.
    for rank in reversed(range(ranks)):
        rank_parts = parts(whole, rank, ranks, dimension)
        write_tensors(tmp_path / "all", rank_parts, rank == 0, metadata={"format": "pt"})
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_tensors_of_several_types_are_ordered_as_the_library_does(tmp_path: Path) -> None:
    whole = {name: torch.ones(3, dtype=getattr(torch, name)) for name in TYPES}
    save_file(whole, tmp_path / "one")
    write_tensors(tmp_path / "all", parts(whole, 0, 1), True)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize(("shape", "dimension"), [((3, MOST_ELEMENTS // 2), 0), ((2001, 3001), 1)])
def test_values_are_converted_a_slice_after_the_other(
    shape: tuple[int, int], dimension: int, tmp_path: Path
) -> None:
    whole = {"large": torch.randn(shape)}
    assert whole["large"].numel() > MOST_ELEMENTS
    save_file({"large": whole["large"].to(torch.bfloat16)}, tmp_path / "one")
    for rank in range(2):
        rank_parts = parts(whole, rank, 2, dimension)
        write_tensors(tmp_path / "all", rank_parts, rank == 0, torch.bfloat16)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_file_that_was_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "all").write_bytes(b"x" * 10_000)
    whole = tensors()
    save_file({name: tensor.clone() for name, tensor in whole.items()}, tmp_path / "one")
    write_tensors(tmp_path / "all", parts(whole, 0, 1), True)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize("dimension", [0, 1])
def test_another_number_of_ranks_reads_its_parts(dimension: int, tmp_path: Path) -> None:
    whole = tensors()
    for rank in range(2):
        write_tensors(tmp_path / "all", parts(whole, rank, 2, dimension), rank == 0)
    for rank in range(3):
        for name, part in parts(whole, rank, 3, dimension).items():
            target = replace(part, values=torch.full_like(part.values, torch.nan))
            with safe_open(tmp_path / "all", framework="pt") as opened:
                read_part(opened, name, target)
            assert torch.equal(target.values, part.values)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_is_an_error_of_each_rank_that_has_no_room(rank: int, tmp_path: Path) -> None:
    whole = {"a": torch.ones(100, 100)}
    with largest_file(20_000), pytest.raises(OSError, match="File too large"):
        write_tensors(tmp_path / "all", parts(whole, rank, 2), rank == 0)
