"""A model's tensors under Megatron-core's names, made from Hugging Face tensors, and back.

Pure; called by `sharded_model.py`. Megatron-core keeps a layer's queries, keys and values in one
tensor, by query group. It keeps the gate with the up projection, by rank. A rank has the rows (or
columns) for its own heads and hidden units. Every change only moves elements, so it is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.sharded.parts import TensorPart

VALUES = "score.weight"
"""Hugging Face's name for a critic's output."""
LeafKind = Literal["copied", "rows", "columns", "fused", "vocabulary"]
"""A tensor's division over ranks. `fused`: by rows, several tensors' rows in turn. `vocabulary`: by
rows, padded with zeros to the same number for each rank."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The numbers that decide how tensors are divided."""

    layers: int
    heads: int
    groups: int
    """Key and value heads; each serves the same number of query heads."""
    vocabulary: int
    ranks: int
    """Tensor parallel size."""

    @property
    def padded(self) -> int:
        """Return the vocabulary's size with the last rank's padding."""
        return -(-self.vocabulary // self.ranks) * self.ranks


@dataclass(frozen=True, slots=True)
class Leaf:
    """One Megatron-core tensor, and the Hugging Face tensors that it is made from."""

    name: str
    kind: LeafKind
    sources: tuple[str, ...]
    parts: tuple[int, ...] = (1,)
    """For `fused`: rows of each source in a block, as a ratio."""
    blocks: int = 1
    """For `fused`: block count; in each block the sources follow each other."""

    @property
    def divided(self) -> bool:
        """Return whether ranks have different parts of it."""
        return self.kind != "copied"

    @property
    def partial(self) -> bool:
        """Return whether each rank has only its own heads' part in the gradient."""
        return self.name.endswith(("q_layernorm.weight", "k_layernorm.weight"))


def leaves(names: Sequence[str], dimensions: Dimensions, whose: str) -> list[Leaf]:
    """Return all tensors for a model whose Hugging Face parameters have these names.

    Raise `ModelUnusable`, which names a parameter that has no place or is missing.
    """
    present = set(names)
    tensors = [Leaf("embedding.weight", "vocabulary", ("model.embed_tokens.weight",))]
    for layer in range(dimensions.layers):
        tensors += _of_layer(layer, dimensions, present)
    tensors.append(Leaf("decoder.final_layernorm.weight", "copied", ("model.norm.weight",)))
    for kind in ("weight", "bias") if VALUES in present else ():
        tensors.append(Leaf(f"output.{kind}", "copied", (f"score.{kind}",)))
    if "lm_head.weight" in present:
        tensors.append(Leaf("output.weight", "vocabulary", ("lm_head.weight",)))
    placed = {source for leaf in tensors for source in leaf.sources}
    if wrong := sorted(present ^ placed):
        lacks = "has no place in the Megatron-core model" if wrong[0] in present else "is missing"
        raise ModelUnusable(whose, f"{wrong[0]} {lacks} (trainer.backend = megatron)")
    return tensors


def shards(leaf: Leaf, whole: Mapping[str, Tensor], dimensions: Dimensions) -> list[Tensor]:
    """Return each rank's shard of a leaf, from whole Hugging Face tensors by name."""
    sources = [whole[name] for name in leaf.sources]
    ranks = dimensions.ranks
    match leaf.kind:
        case "copied":
            return sources * ranks
        case "rows":
            return list(sources[0].chunk(ranks, 0))
        case "columns":
            return list(sources[0].chunk(ranks, 1))
        case "vocabulary":
            filler = sources[0].new_zeros(
                dimensions.padded - dimensions.vocabulary, *sources[0].shape[1:]
            )
            return list(torch.cat([sources[0], filler]).chunk(ranks, 0))
        case "fused":
            blocks = [source.reshape(leaf.blocks, -1, *source.shape[1:]) for source in sources]
            return list(torch.cat(blocks, 1).flatten(0, 1).chunk(ranks, 0))


def whole(leaf: Leaf, by_rank: Sequence[Tensor], dimensions: Dimensions) -> dict[str, Tensor]:
    """Return a leaf's whole Hugging Face tensors, by name, from each rank's shard."""
    match leaf.kind:
        case "copied":
            return {leaf.sources[0]: by_rank[0]}
        case "rows":
            return {leaf.sources[0]: torch.cat([*by_rank])}
        case "columns":
            return {leaf.sources[0]: torch.cat([*by_rank], 1)}
        case "vocabulary":
            return {leaf.sources[0]: torch.cat([*by_rank])[: dimensions.vocabulary]}
        case "fused":
            joined = torch.cat([*by_rank])
            in_blocks = joined.reshape(leaf.blocks, -1, *joined.shape[1:])
            unit = in_blocks.shape[1] // sum(leaf.parts)
            parts = torch.split(in_blocks, [unit * part for part in leaf.parts], 1)
            pairs = zip(leaf.sources, parts, strict=True)
            return {name: part.flatten(0, 1).contiguous() for name, part in pairs}


def source_parts(
    leaf: Leaf, shard: Tensor, dimensions: Dimensions, place: int
) -> dict[str, TensorPart]:
    """Return a rank's parts of a leaf's Hugging Face tensors, by name, from its shard.

    `place`: the shard's number. The parts share the shard's memory if a rank has at most one block.
    """
    ranks = dimensions.ranks
    rows = len(shard)
    match leaf.kind:
        case "copied":
            return {leaf.sources[0]: TensorPart(shard, tuple(shard.shape))}
        case "columns":
            width = shard.shape[1]
            return {leaf.sources[0]: TensorPart(shard, (rows, width * ranks), 1, place * width)}
        case "vocabulary":
            kept = shard[: max(0, dimensions.vocabulary - place * rows)]
            shape = (dimensions.vocabulary, *shard.shape[1:])
            return {leaf.sources[0]: TensorPart(kept, shape, 0, place * rows)}
        case "rows" | "fused":
            in_blocks = shard.reshape(max(1, leaf.blocks // ranks), -1, *shard.shape[1:])
            unit = in_blocks.shape[1] // sum(leaf.parts)
            values = torch.split(in_blocks, [unit * part for part in leaf.parts], 1)
            flat = [value.flatten(0, 1).contiguous() for value in values]
            return {
                name: TensorPart(
                    tensor, (len(tensor) * ranks, *tensor.shape[1:]), 0, place * len(tensor)
                )
                for name, tensor in zip(leaf.sources, flat, strict=True)
            }


def joined(leaf: Leaf, parts: Mapping[str, TensorPart], dimensions: Dimensions) -> Tensor:
    """Return a rank's shard of a leaf, from the rank's parts of Hugging Face tensors."""
    values = [parts[name].values for name in leaf.sources]
    match leaf.kind:
        case "copied" | "columns":
            return values[0]
        case "vocabulary":
            (part,) = values
            missing = dimensions.padded // dimensions.ranks - len(part)
            return torch.cat([part, part.new_zeros(missing, *part.shape[1:])])
        case "rows" | "fused":
            count = max(1, leaf.blocks // dimensions.ranks)
            blocks = [part.reshape(count, -1, *part.shape[1:]) for part in values]
            return torch.cat(blocks, 1).flatten(0, 1)


def _of_layer(layer: int, dimensions: Dimensions, present: set[str]) -> list[Leaf]:
    origin = f"model.layers.{layer}"
    to = f"decoder.layers.{layer}"
    per_group = (dimensions.heads // dimensions.groups, 1, 1)
    tensors = [
        Leaf(f"{to}.input_layernorm.weight", "copied", (f"{origin}.input_layernorm.weight",)),
        Leaf(
            f"{to}.pre_mlp_layernorm.weight",
            "copied",
            (f"{origin}.post_attention_layernorm.weight",),
        ),
        Leaf(
            f"{to}.self_attention.linear_proj.weight",
            "columns",
            (f"{origin}.self_attn.o_proj.weight",),
        ),
        Leaf(
            f"{to}.mlp.linear_fc1.weight",
            "fused",
            (f"{origin}.mlp.gate_proj.weight", f"{origin}.mlp.up_proj.weight"),
            (1, 1),
            dimensions.ranks,
        ),
        Leaf(f"{to}.mlp.linear_fc2.weight", "columns", (f"{origin}.mlp.down_proj.weight",)),
    ]
    for kind in ("weight", "bias"):
        sources = tuple(f"{origin}.self_attn.{letter}_proj.{kind}" for letter in "qkv")
        if kind == "weight" or sources[0] in present:
            name = f"{to}.self_attention.linear_qkv.{kind}"
            tensors.append(Leaf(name, "fused", sources, per_group, dimensions.groups))
    for letter in "qk":
        if (source := f"{origin}.self_attn.{letter}_norm.weight") in present:
            tensors.append(
                Leaf(f"{to}.self_attention.{letter}_layernorm.weight", "copied", (source,))
            )
    return tensors
