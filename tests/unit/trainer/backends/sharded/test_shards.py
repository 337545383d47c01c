"""Models built without weights and then filled: as those loaded whole."""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.model import load_critic, load_model
from seamlessflow.trainer.backends.sharded.shards import fill, is_empty
from tests.builders.models import model, saved


def filled(empty: PreTrainedModel, directory: Path) -> PreTrainedModel:
    assert is_empty(empty)
    fill(empty, directory, torch.device("cpu"))
    return empty


def same(left: PreTrainedModel, right: PreTrainedModel) -> None:
    """Compare all parameters and buffers, those that no file holds included."""
    for method in ("named_parameters", "named_buffers"):
        tensors, other = (dict(getattr(each, method)()) for each in (left, right))
        assert tensors.keys() == other.keys()
        for name in tensors:
            assert tensors[name].dtype == other[name].dtype
            torch.testing.assert_close(tensors[name], other[name], atol=0, rtol=0)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "gemma2"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_filled_model_is_the_one_that_is_loaded_whole(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    saved(model(kind, tied=tied), tmp_path)
    network = filled(load_model(tmp_path, "float32", empty=True), tmp_path)
    whole = load_model(tmp_path, "float32")
    same(network, whole)
    output, embedded = network.get_output_embeddings(), network.get_input_embeddings()  # type: ignore[no-untyped-call]
    assert (output.weight is embedded.weight) == tied
    assert network.training == whole.training
    ids = torch.arange(9)[None]
    torch.testing.assert_close(network(ids).logits, whole(ids).logits, atol=0, rtol=0)


def test_a_model_in_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    network = filled(load_model(tmp_path, "bfloat16", empty=True), tmp_path)
    same(network, load_model(tmp_path, "bfloat16"))


def test_an_index_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path, max_shard_size="50KB")
    index = tmp_path / "model.safetensors.index.json"
    text = index.read_text(encoding="utf-8")
    index.write_text(text.replace("model-00001-of", "../model-00001-of"), encoding="utf-8")
    with pytest.raises(ModelUnusable, match="not a file beside it"):
        load_model(tmp_path, "float32", empty=True)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_critic_is_filled_but_for_its_outputs_of_zeros(tmp_path: Path, outputs: int) -> None:
    saved(model(), tmp_path)
    empty = load_critic(tmp_path, "float32", empty=True, outputs=outputs)
    assert is_empty(empty)
    same(filled(empty, tmp_path), load_critic(tmp_path, "float32", outputs=outputs))


def test_a_model_whose_files_need_a_conversion_is_loaded_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(model("qwen3").model, tmp_path)
    network = load_model(tmp_path, "float32", empty=True)
    assert not is_empty(network)
    assert "needs a conversion" in caplog.text or "need a conversion" in caplog.text


def test_a_file_cut_short_makes_the_model_unusable(tmp_path: Path) -> None:
    saved(model(), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelUnusable, match="cannot be loaded"):
        load_model(tmp_path, "float32", empty=True)
