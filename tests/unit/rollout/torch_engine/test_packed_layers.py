"""Packed layers: the products of plain ones, new weights, and models that stay plain."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.torch_engine.packed_layers import PackedLayers, PackedLinear
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import config, large_model, plain_logprobs, prompt, random_model, saved
from tests.builders.rollout.generation import Generation


def packed(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, PackedLinear)]


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (64, 1), (2, 37)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_gives_the_product_of_the_plain_one(
    shape: tuple[int, ...], bias: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(300, 260, bias=bias)
    inputs = torch.randn(*shape, 300)
    with torch.inference_mode():
        wanted = layer.double()(inputs.double())
        product = PackedLinear(layer.float(), tied=False)(inputs)
    torch.testing.assert_close(product.double(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_an_engine_samples_from_packed_layers_and_from_their_new_weights(
    kind: str, tied: bool, start: StartEngine, tmp_path: Path
) -> None:
    models = [large_model(kind, seed, tie_word_embeddings=tied) for seed in (0, 1)]
    taken = large_model(kind, 0, tie_word_embeddings=tied)
    engine = start(taken)
    assert "lm_head" in packed(taken) and len(packed(taken)) > 5
    for version, source in enumerate(models):
        if version:
            engine.pause("keep")
            engine.load_weights(saved(source, tmp_path), version)
            engine.resume()
        generation = Generation(engine, prompt(20), SamplingParams(30), f"r{version}")
        generation.finish()
        wanted = plain_logprobs(source, generation.tokens, 20)
        np.testing.assert_allclose(generation.logprobs, wanted, rtol=0, atol=1e-4)
    engine.pause("keep")
    engine.sleep()
    engine.wake()
    engine.resume()
    again = Generation(engine, prompt(20), SamplingParams(30, temperature=0.0), "again")
    again.finish()
    wanted = plain_logprobs(models[1], again.tokens, 20)
    np.testing.assert_allclose(again.logprobs, wanted, rtol=0, atol=1e-4)


def test_plain_weights_are_kept_only_where_they_are_tied() -> None:
    for tied in (False, True):
        taken = large_model(tie_word_embeddings=tied)
        names = {name: tensor.shape for name, tensor in taken.state_dict().items()}
        layers = PackedLayers(taken)
        state = taken.state_dict()
        assert {name: tensor.shape for name, tensor in state.items()} == names
        kept = [name for name in packed(taken) if not state[f"{name}.weight"].is_meta]
        assert kept == (["lm_head"] if tied else [])
        layers.put(large_model(seed=1, tie_word_embeddings=tied).state_dict())
        assert [name for name in packed(taken) if not state[f"{name}.weight"].is_meta] == kept


class OwnProduct(nn.Module):
    """A head that multiplies with its layer's weight by itself."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(inputs, self.layer.weight)


def test_a_model_that_reads_its_layers_weights_stays_plain() -> None:
    taken = large_model(tie_word_embeddings=False)
    taken.lm_head = OwnProduct(taken.lm_head)
    before = {name: tensor.clone() for name, tensor in taken.state_dict().items()}
    PackedLayers(taken)
    assert not packed(taken)
    after = taken.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_small_layers_and_other_types_stay_plain() -> None:
    small = random_model(config("qwen2"))
    PackedLayers(small)
    assert not packed(small)
    for dtype in (torch.float64, torch.bfloat16):
        large = large_model(dtype=dtype)
        PackedLayers(large)
        assert large.dtype == dtype and not packed(large)
