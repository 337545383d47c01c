"""The files of a model that ranks write each its rows of: as `save_pretrained` writes it alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.infra.weights.tensors import tensor_hashes
from seamlessflow.trainer.backends.model import load_model, write_model
from seamlessflow.trainer.backends.sharded.model_files import model_files
from seamlessflow.trainer.backends.sharded.parts import Parts, part_of
from seamlessflow.trainer.parallelism import Dtype
from tests.builders.models import config, model, random_model, saved


def rows(whole: PreTrainedModel, rank: int) -> Parts:
    """Return the rows of one of two ranks."""
    found = {}
    for name, tensor in whole.state_dict().items():
        each = -(-len(tensor) // 2)
        own = tensor[rank * each : (rank + 1) * each]
        found[name] = replace(part_of(tensor), values=own, first=rank * each)
    return found


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
    halves = {name: of.to(getattr(torch, dtype)) for name, of in whole.state_dict().items()}
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
    one, other = (
        AutoModelForCausalLM.from_pretrained(tmp_path / of, dtype="auto") for of in ("one", "all")
    )
    assert one.dtype == other.dtype == getattr(torch, dtype)
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_model_whose_files_have_other_tensors_cannot_be_written_by_rows(tmp_path: Path) -> None:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    mixture = random_model(config("qwen3_moe", **experts))
    whole = load_model(saved(mixture, tmp_path / "model"), "float32")
    assert model_files(whole, "float32") is None
