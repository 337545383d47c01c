"""Settings for a step's computation: types, memory, and the model's division over ranks.

Also a check whether Megatron-core can compute a model. Importable without torch.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from seamlessflow.infra.settings import Section

Dtype = Literal["float32", "bfloat16", "float16"]
SIZES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per element."""
LOGITS_AT_ONCE = 1 << 24
"""Most logits that a rank holds at a time: 64 MiB in float32, and as much for each result from
them."""
PAIRS = 2048
"""Token pairs whose attention takes about as long as a layer's products for one token."""
TREE_TOKENS = 8192
"""Most tokens in a tree with `layout: auto`: a mask over its pairs takes 320 MiB on a CPU."""
Attention = Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"]
MEGATRON_FAMILIES = ("llama", "qwen2", "qwen3")
_ROTARY = ("default", "linear", "llama3")
"""Rotary embeddings whose frequencies depend on neither length nor step."""


class Parallel(Protocol):
    """The trainer settings that the model's division must fit."""

    @property
    def ranks(self) -> int:
        """Return how many devices the gang has."""

    @property
    def attention(self) -> str:
        """Return which implementation computes attention."""

    @property
    def adapter_used(self) -> bool:
        """Return whether an adapter is trained."""

    @property
    def gradient_checkpointing(self) -> bool:
        """Return whether the backward pass computes activations again."""


class MegatronSection(Section):
    """The model's division over ranks by Megatron-core."""

    tensor_parallel: int = Field(
        1,
        ge=1,
        description="Consecutive ranks that compute each layer together; there are trainer.ranks / "
        "tensor_parallel such sets, and each trains different sequences",
    )
    pipeline_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")
    context_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")
    expert_parallel: int = Field(1, ge=1, description="Only 1: others are unproven")

    @model_validator(mode="after")
    def _proven(self) -> "MegatronSection":
        for name in ("pipeline_parallel", "context_parallel", "expert_parallel"):
            if getattr(self, name) > 1:
                raise ValueError(
                    f"{name} is unproven with this trainer: set 1, and divide the model by "
                    "tensor_parallel (or trainer.backend = fsdp2)"
                )
        return self

    def check(self, trainer: Parallel) -> None:
        """Raise `ValueError` for a trainer setting that is not proven with Megatron-core."""
        if trainer.ranks % self.tensor_parallel:
            raise ValueError(
                f"ranks {trainer.ranks} must be a multiple of megatron.tensor_parallel "
                f"{self.tensor_parallel}"
            )
        for unproven, name in (
            (trainer.attention != "sdpa", f"attention {trainer.attention}"),
            (trainer.adapter_used, "an adapter"),
            (trainer.gradient_checkpointing, "gradient_checkpointing"),
        ):
            if unproven:
                raise ValueError(
                    f"{name} is unproven with backend megatron: choose backend fsdp2 for it"
                )


class ComputingSettings(Section):
    """The trainer settings that say how a rank computes."""

    dtype: Dtype = Field(
        "float32",
        description="Element type in which the model computes and its weights are published; "
        "float16 computes with loss scaling",
    )
    master_dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Element type in which weights and optimizer are kept and updated; bfloat16 "
        "takes half the memory, but loses updates smaller than 1/256 of a weight",
    )
    compute_dtype: Dtype | None = Field(
        None, description="Element type for matrix products; none: dtype"
    )
    weights_dtype: Dtype | None = Field(
        None, description="Element type for published weights; none: dtype"
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1; auto: cuda if there is one")
    threads: int | None = Field(
        None, ge=1, description="CPU threads that torch uses in each rank; none: torch's default"
    )
    layout: Literal["auto", "padded", "packed", "tree"] = Field(
        "auto",
        description="How chains fill a row. padded: one chain in each; packed: many chains in one "
        "row, for long chains with uneven lengths on a device with flash attention; tree: as "
        "packed, but first tokens that chains share are computed once; auto: padded, but on a CPU "
        "chains that begin alike share their first tokens where that is less work",
    )
    attention: Attention = Field(
        "sdpa",
        description="Attention code; sdpa: torch's own, or eager for a model without it; eager: "
        "all scores written out; others: the package flash_attn, on a GPU in half precision and "
        "without layout tree",
    )
    micro_batch_tokens: int = Field(
        16_384,
        ge=2,
        description="Most tokens in a forward and backward pass, including padding. On a CPU the "
        "default is lower if their activations would take more than 640 MiB. With layout tree, a "
        "mask takes at least the square of this in bytes",
    )
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in the backward pass instead of keeping them"
    )

    offload_mb: int | None = Field(
        None,
        ge=0,
        description="Most host memory for a worker's weights and optimizer while its GPUs roll "
        "out, in MiB; none: what the host has",
    )

    @model_validator(mode="after")
    def _attends(self) -> Self:
        if self.flash:
            if self.layout == "tree":
                raise ValueError(
                    f"attention {self.attention} takes no mask of pairs of tokens, as layout tree "
                    "needs it: set attention sdpa, or layout packed"
                )
            if self.compute == "float32":
                raise ValueError(
                    f"attention {self.attention} computes in half precision alone: set dtype "
                    "bfloat16, or attention sdpa"
                )
        return self

    @property
    def flash(self) -> bool:
        """Return whether the package flash_attn computes attention."""
        return self.attention.startswith("flash")

    @property
    def compute(self) -> Dtype:
        """Return the element type for matrix products."""
        return self.compute_dtype or self.dtype


def unproven_model(config: Mapping[str, Any]) -> str:
    """Return why Megatron-core cannot compute a model, by its `config.json`; empty if it can."""
    if (family := config.get("model_type")) not in MEGATRON_FAMILIES:
        return f"is a {family}, not one of {', '.join(MEGATRON_FAMILIES)}"
    if (activation := config.get("hidden_act", "silu")) != "silu":
        return f"has the hidden_act {activation}, not silu"
    if {*(config.get("layer_types") or ())} - {"full_attention"}:
        return "has layers with sliding attention"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return "" if kind in _ROTARY else f"has the rope_type {kind}, not one of {', '.join(_ROTARY)}"
