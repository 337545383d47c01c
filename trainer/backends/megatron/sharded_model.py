"""A causal model or a critic, made from Megatron-core's layers and divided into a shard per rank.

It is called like a transformers model, so forward passes, reference and teacher are the same as in
the other back ends. `whole_tensors` returns its parameters as whole Hugging Face tensors.
Dimensions: B rows, T columns, H hidden, V vocabulary, O critic outputs.
"""

import copy
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from seamlessflow.trainer.backends.megatron.architecture import dimensions, transformer_config
from seamlessflow.trainer.backends.megatron.leaves import (
    VALUES,
    Dimensions,
    joined,
    leaves,
    shards,
    source_parts,
    whole,
)
from seamlessflow.trainer.backends.megatron.library import (
    ColumnParallelLinear,
    RankGroups,
    TransformerBlock,
    VocabParallelEmbedding,
    get_gpt_layer_local_spec,
)
from seamlessflow.trainer.backends.sharded.parts import TensorPart
from seamlessflow.trainer.backends.sharded.shards import is_empty, reader


class ShardedModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """This rank's shard of a model."""

    frequencies: Tensor
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, model: PreTrainedModel, groups: RankGroups, compute: torch.dtype) -> None:
        """Take this rank's part of a model, from its files if it is empty. Raise `ModelUnusable`.

        `compute`: type for matrix products and for the states between layers.
        """
        self._dimensions = dimensions(model, groups.size)
        parameters = dict(model.named_parameters())
        super().__init__(copy.deepcopy(model.config))
        self._groups = groups
        self._compute = compute
        self.leaves = leaves([*parameters], self._dimensions, str(model.name_or_path))
        self._family = type(model)
        # A critic has none.
        self._generation: Any = getattr(model, "generation_config", None)
        self._values = len(parameters.get(VALUES, ()))
        self._tied = "output.weight" not in {leaf.name for leaf in self.leaves}
        first = next(iter(parameters.values()))
        self._build(
            first.dtype,
            biased=any(name.endswith("q_proj.bias") for name in parameters),
            normed=any(name.endswith("q_norm.weight") for name in parameters),
        )
        rotary: Any = model.base_model.rotary_emb
        self.register_buffer("frequencies", rotary.inv_freq.clone().float(), persistent=False)
        if is_empty(model):
            self.read(dict(self.named_parameters()), reader(model, Path(str(model.name_or_path))))
        else:
            self.load_whole(parameters)
        self.requires_grad_(first.requires_grad)
        nn.Module.eval(self)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = False,
    ) -> CausalLMOutput:
        """Return logits (B, T, V), or a critic's values (B, T, O).

        `attention_mask` (B, 1, T, T): the tokens that each token sees.
        """
        rows, size = input_ids.shape
        if position_ids is not None and attention_mask is None:
            attention_mask = seen_tokens(position_ids)
        places_BT = torch.arange(size, device=input_ids.device).expand(rows, size)
        angles_TB1D = self._angles(places_BT if position_ids is None else position_ids)
        embedded_TBH = self.embedding(input_ids).transpose(0, 1).to(self._compute)
        states_TBH = self._computed(
            self.decoder,
            hidden_states=embedded_TBH.contiguous(),
            attention_mask=attention_mask,
            rotary_pos_emb=angles_TB1D,
        )
        if self._values:
            values_BTO = self._computed(self.output, states_TBH.transpose(0, 1))
            return CausalLMOutput(logits=values_BTO)
        weight = self.embedding.weight.to(self._compute) if self._tied else None
        output = self._computed(self.output, states_TBH.transpose(0, 1), weight)
        if isinstance(output, Tensor):  # scores in place of logits and bias, see `Forward`
            return CausalLMOutput(logits=output)
        return CausalLMOutput(logits=self.divided_vocabulary.gathered(output[0]))

    @property
    def divided_vocabulary(self) -> "_DividedVocabulary":
        """Return the output layer's division over a model's ranks."""
        return _DividedVocabulary(self._groups, self._dimensions)

    def _computed(self, module: nn.Module, *arguments: object, **named: object) -> Any:
        """Call a module with its parameters in the computation's type.

        It does not use autocast, which Megatron-core's products follow only on CUDA devices.
        Gradients come back to the parameters in their own type.
        """
        typed = {name: parameter.to(self._compute) for name, parameter in module.named_parameters()}
        return functional_call(module, typed, arguments, named)

    def get_output_embeddings(self) -> nn.Module:
        output: nn.Module = self.output
        return output

    def whole_tensors(self, shards: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole Hugging Face tensors, from this rank's shards by Megatron-core's names.

        The shards are weights, gradients or moments. All ranks that share the model must call it.
        """
        tensors: dict[str, Tensor] = {}
        for leaf in self.leaves:
            if leaf.name in shards:
                of_ranks = self._groups.shards(shards[leaf.name].detach())
                tensors |= whole(leaf, of_ranks, self._dimensions)
        return tensors

    def own_shards(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's shards by Megatron-core's names, from whole tensors."""
        return {
            leaf.name: shards(leaf, tensors, self._dimensions)[self._groups.place]
            for leaf in self.leaves
        }

    @torch.no_grad()
    def load_whole(self, tensors: Mapping[str, Tensor]) -> None:
        """Take this rank's shards from whole Hugging Face tensors."""
        parameters = dict(self.named_parameters())
        for name, shard in self.own_shards(tensors).items():
            parameters[name].copy_(shard)

    def parts(self, shards: Mapping[str, Tensor]) -> dict[str, TensorPart]:
        """Return this rank's parts of Hugging Face tensors, from shards by Megatron-core's names.

        If several ranks have the same shards, the first has their parts and the others have none.
        """
        parts: dict[str, TensorPart] = {}
        for leaf in self.leaves:
            if leaf.name in shards:
                shard = shards[leaf.name].detach()
                parts |= source_parts(leaf, shard, self._dimensions, self._groups.place)
        return {name: part.first_of(self._groups.copy) for name, part in parts.items()}

    @torch.no_grad()
    def read(self, shards: Mapping[str, Tensor], read: Callable[[str, TensorPart], None]) -> None:
        """Read this rank's shards. Elements that `read` does not fill are 0.

        `read` gets the name and the part of each Hugging Face tensor, and fills the part's memory.
        """
        for leaf in self.leaves:
            shard = shards[leaf.name].zero_()
            parts = source_parts(leaf, shard, self._dimensions, self._groups.place)
            for name, part in parts.items():
                read(name, part)
            if leaf.blocks > self._groups.size:  # else they are the shard's own memory
                shard.copy_(joined(leaf, parts, self._dimensions))

    def unsharded(self) -> PreTrainedModel:
        """Return a model like the original one, but without memory."""
        with torch.device("meta"):
            model: PreTrainedModel = self._family(copy.deepcopy(self.config))
        model.generation_config = self._generation
        return model

    @property
    def whole_names(self) -> Set[str]:
        """Return the names of the whole Hugging Face parameters."""
        return {name for leaf in self.leaves for name in leaf.sources}

    def _build(self, dtype: torch.dtype, biased: bool, normed: bool) -> None:
        config = transformer_config(self.config, self._groups.size, dtype, biased, normed)
        spec: Any = get_gpt_layer_local_spec(qk_layernorm=normed, normalization="RMSNorm")
        spec.submodules.self_attention.submodules.core_attention = HeadAttention
        width = self.config.hidden_size
        shared: dict[str, Any] = {
            "config": config,
            "init_method": config.init_method,
            "tp_group": self._groups.tensor,
        }
        self.embedding = VocabParallelEmbedding(self._dimensions.padded, width, **shared)
        self.decoder = TransformerBlock(config, spec)
        self.output = (
            nn.Linear(width, self._values)  # the same on all ranks
            if self._values
            else ColumnParallelLinear(
                width,
                self._dimensions.padded,
                bias=False,
                gather_output=False,
                skip_weight_param_allocation=self._tied,
                **shared,
            )
        )
        nn.Module.to(self, dtype)  # norms begin in float32

    def _angles(self, positions_BT: Tensor) -> Tensor:
        """Return the rotary embedding's angles (T, B, 1, a head's width)."""
        half_TBD = positions_BT.transpose(0, 1)[..., None].float() * self.frequencies
        return torch.cat([half_TBD, half_TBD], -1)[:, :, None]


@dataclass(frozen=True, slots=True)
class _DividedVocabulary:
    """A model's `DividedVocabulary` (see `scores.py`)."""

    _groups: RankGroups
    _dimensions: Dimensions

    @property
    def size(self) -> int:
        return self._dimensions.vocabulary

    def gathered(self, own_RV: Tensor) -> Tensor:
        # Megatron-core's own gathering needs a CUDA device. Gradients flow to this rank's part.
        of_ranks = self._groups.shards(own_RV.detach())
        of_ranks[self._groups.place] = own_RV
        return torch.cat(of_ranks, -1)[..., : self.size]

    def own_part(self, all_RV: Tensor) -> Tensor:
        width = self._dimensions.padded // self._groups.size
        own_RV = all_RV[..., self._groups.place * width :][..., :width]
        return nn.functional.pad(own_RV, (0, width - own_RV.shape[-1]))

    def summed(self, of_rank_NH: Tensor) -> Tensor:
        self._groups.sum_model(of_rank_NH)
        return of_rank_NH


class HeadAttention(nn.Module):
    """Torch's scaled dot-product attention, constructed and called as Megatron-core does."""

    def __init__(self, config: Any, **_: object) -> None:
        super().__init__()
        self._scale = config.kv_channels**-0.5

    def forward(
        self,
        query_TBQD: Tensor,
        key_TBGD: Tensor,
        value_TBGD: Tensor,
        seen_B1TT: Tensor | None,
        **_: object,
    ) -> Tensor:
        """Return the attended values (T, B, Q * D).

        `seen_B1TT`: the tokens (last dimension) that each token sees; None: itself and earlier
        ones.
        """
        query, key, value = (
            tensor.permute(1, 2, 0, 3) for tensor in (query_TBQD, key_TBGD, value_TBGD)
        )
        mixed_BQTD = nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=seen_B1TT,
            is_causal=seen_B1TT is None,
            scale=self._scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return mixed_BQTD.permute(2, 0, 1, 3).flatten(2).contiguous()


def seen_tokens(positions_BT: Tensor) -> Tensor:
    """Return the tokens that each token sees (B, 1, T, T), with several chains in one row.

    A chain begins at each position 0.
    """
    chains_BT = (positions_BT == 0).cumsum(-1)
    same_BTT = chains_BT[:, :, None] == chains_BT[:, None, :]
    size = positions_BT.shape[-1]
    earlier_TT = torch.ones(size, size, dtype=torch.bool, device=positions_BT.device).tril()
    return (same_BTT & earlier_TT)[:, None]
