"""Every tensor of a model has a place among Megatron-core's, and comes back from it exactly."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.megatron.leaves import (
    Dimensions,
    joined,
    leaves,
    shards,
    source_parts,
    whole,
)

LAYER = {
    "input_layernorm.weight": (16,),
    "post_attention_layernorm.weight": (16,),
    "self_attn.q_proj.weight": (64, 16),
    "self_attn.k_proj.weight": (32, 16),
    "self_attn.v_proj.weight": (32, 16),
    "self_attn.o_proj.weight": (16, 64),
    "mlp.gate_proj.weight": (24, 16),
    "mlp.up_proj.weight": (24, 16),
    "mlp.down_proj.weight": (16, 24),
}
BIASES = {
    f"self_attn.{letter}_proj.bias": (size,) for letter, size in (("q", 64), ("k", 32), ("v", 32))
}
NORMS = {f"self_attn.{letter}_norm.weight": (8,) for letter in "qk"}
OUTPUT = {"lm_head.weight": (33, 16)}


def dimensions(ranks: int) -> Dimensions:
    return Dimensions(layers=2, heads=8, groups=4, vocabulary=33, ranks=ranks)


def tensors(
    of_layer: Mapping[str, tuple[int, ...]], further: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Return a model of two layers, no two of whose numbers are equal."""
    shapes = {"model.embed_tokens.weight": (33, 16), "model.norm.weight": (16,), **further}
    for layer in range(2):
        shapes |= {
            f"model.layers.{layer}.{name}": layer_shape for name, layer_shape in of_layer.items()
        }
    parameters: dict[str, Tensor] = {}
    begin = 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel()
        parameters[name] = torch.arange(begin, begin + size, dtype=torch.float64).reshape(shape)
        begin += size
    return parameters


LLAMA = tensors(LAYER, OUTPUT)
QWEN2 = tensors({**LAYER, **BIASES}, OUTPUT)
QWEN3 = tensors({**LAYER, **NORMS}, {})


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("weights", [LLAMA, QWEN2, QWEN3], ids=["llama", "qwen2", "qwen3"])
def test_what_is_divided_comes_back_leaf_by_leaf(weights: dict[str, Tensor], ranks: int) -> None:
    restored: dict[str, Tensor] = {}
    for leaf in leaves([*weights], dimensions(ranks), "tiny"):
        of_ranks = shards(leaf, weights, dimensions(ranks))
        assert len(of_ranks) == ranks
        assert len({shard.shape for shard in of_ranks}) == 1
        restored |= whole(leaf, of_ranks, dimensions(ranks))
    assert restored.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(restored[name], tensor), name


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("weights", [LLAMA, QWEN2, QWEN3], ids=["llama", "qwen2", "qwen3"])
def test_the_parts_of_all_ranks_are_the_tensors_and_make_the_shards_again(
    weights: dict[str, Tensor], ranks: int
) -> None:
    restored = {name: torch.full_like(original, torch.nan) for name, original in weights.items()}
    for leaf in leaves([*weights], dimensions(ranks), "tiny"):
        for place, shard in enumerate(shards(leaf, weights, dimensions(ranks))):
            parts = source_parts(leaf, shard, dimensions(ranks), place)
            assert torch.equal(joined(leaf, parts, dimensions(ranks)), shard)
            for name, part in parts.items():
                assert part.shape == tuple(weights[name].shape)
                count = part.values.shape[part.dimension]
                restored[name].narrow(part.dimension, part.first, count).copy_(part.values)
    for name, tensor in weights.items():
        assert torch.equal(restored[name], tensor), name


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_parts_share_the_memory_of_a_shard_with_one_block_a_rank(ranks: int) -> None:
    for leaf in leaves([*QWEN2], dimensions(ranks), "tiny"):
        shard = shards(leaf, QWEN2, dimensions(ranks))[0].clone()
        parts = source_parts(leaf, shard, dimensions(ranks), 0)
        for part in parts.values():
            part.values.zero_()
        assert (shard == 0).all() == (leaf.blocks <= ranks), leaf.name


def test_a_rank_has_whole_query_groups_with_their_keys_and_values() -> None:
    prefix = "model.layers.1.self_attn"
    (leaf,) = (
        candidate
        for candidate in leaves([*QWEN2], dimensions(2), "tiny")
        if "s.1.self_attention.linear_qkv.w" in candidate.name
    )
    _, second = shards(leaf, QWEN2, dimensions(2))
    expected = [
        part
        for group in (2, 3)
        for part in (
            QWEN2[f"{prefix}.q_proj.weight"][group * 16 : group * 16 + 16],
            QWEN2[f"{prefix}.k_proj.weight"][group * 8 : group * 8 + 8],
            QWEN2[f"{prefix}.v_proj.weight"][group * 8 : group * 8 + 8],
        )
    ]
    assert torch.equal(second, torch.cat(expected))


def test_the_last_rank_has_zeros_after_the_vocabulary() -> None:
    leaf = leaves([*LLAMA], dimensions(2), "tiny")[0]
    first, last = shards(leaf, LLAMA, dimensions(2))
    assert torch.equal(first, LLAMA["model.embed_tokens.weight"][:17])
    assert torch.equal(last[:16], LLAMA["model.embed_tokens.weight"][17:])
    assert not last[16:].any()


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.o_proj.bias", "model.layers.1.mlp.gate_proj.bias", "score.w"]
)
def test_a_tensor_without_a_place_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ModelUnusable, match=f"tiny: {name} has no place"):
        leaves([*LLAMA, name], dimensions(1), "tiny")


def test_a_missing_tensor_is_refused_by_its_name() -> None:
    names = [name for name in QWEN2 if name != "model.layers.1.self_attn.v_proj.bias"]
    with pytest.raises(ModelUnusable, match=r"layers\.1\.self_attn\.v_proj\.bias is missing"):
        leaves(names, dimensions(1), "tiny")
