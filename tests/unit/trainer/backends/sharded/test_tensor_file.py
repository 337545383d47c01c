"""A file of tensors that ranks write each its part of: as if one had written it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from seamlessflow.trainer.backends.sharded.parts import Parts, TensorPart, part_of, read_part
from seamlessflow.trainer.backends.sharded.tensor_file import MOST_ELEMENTS, write_tensors
from tests.builders.disks.file_limit import largest_file

WHOLE_NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
TYPES = (*WHOLE_NUMBERS, "float16", "bfloat16", "float32", "float64")
SHAPES = {"b": (7, 3), "a": (5,), "größe": (1, 4), "none": (0, 2), "deep": (4, 3, 2)}


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    whole = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    whole["step"] = torch.tensor(3.0)
    return whole


def parts(whole: dict[str, torch.Tensor], rank: int, ranks: int, dimension: int = 0) -> Parts:
    """Return a rank's part of each tensor, divided in a dimension if it has that."""
    found: dict[str, TensorPart] = {}
    for name, tensor in whole.items():
        found[name] = part = part_of(tensor)
        if tensor.dim() > dimension:
            each = -(-tensor.shape[dimension] // ranks)
            first = min(rank * each, tensor.shape[dimension])
            count = min(each, tensor.shape[dimension] - first)
            own = tensor.narrow(dimension, first, count)
            found[name] = replace(part, values=own, dimension=dimension, first=first)
    return found


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_bytes_are_those_of_a_file_of_whole_tensors(
    ranks: int, dimension: int, tmp_path: Path
) -> None:
    whole = tensors()
    save_file({name: of.clone() for name, of in whole.items()}, tmp_path / "one", {"format": "pt"})
    # The order in which ranks come does not matter.
    for rank in reversed(range(ranks)):
        own = parts(whole, rank, ranks, dimension)
        write_tensors(tmp_path / "all", own, rank == 0, metadata={"format": "pt"})
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
        own = parts(whole, rank, 2, dimension)
        write_tensors(tmp_path / "all", own, rank == 0, torch.bfloat16)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_file_that_was_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "all").write_bytes(b"x" * 10_000)
    whole = tensors()
    save_file({name: of.clone() for name, of in whole.items()}, tmp_path / "one")
    write_tensors(tmp_path / "all", parts(whole, 0, 1), True)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize("dimension", [0, 1])
def test_another_number_of_ranks_reads_its_parts(dimension: int, tmp_path: Path) -> None:
    whole = tensors()
    for rank in range(2):
        write_tensors(tmp_path / "all", parts(whole, rank, 2, dimension), rank == 0)
    for rank in range(3):
        for name, part in parts(whole, rank, 3, dimension).items():
            found = replace(part, values=torch.full_like(part.values, torch.nan))
            with safe_open(tmp_path / "all", framework="pt") as opened:
                read_part(opened, name, found)
            assert torch.equal(found.values, part.values)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_is_an_error_of_each_rank_that_has_no_room(rank: int, tmp_path: Path) -> None:
    whole = {"a": torch.ones(100, 100)}
    with largest_file(20_000), pytest.raises(OSError, match="File too large"):
        write_tensors(tmp_path / "all", parts(whole, rank, 2), rank == 0)
