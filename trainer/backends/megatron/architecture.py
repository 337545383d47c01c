"""A Hugging Face model's architecture as Megatron-core's settings; refuses what differs.

Called by `sharded_model.py`. It takes dense Qwen2, Qwen3 and Llama. A part that Megatron-core
computes in another way, or not at all, raises an error that names it.
"""

from typing import Any

import torch
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.megatron.leaves import Dimensions
from seamlessflow.trainer.backends.megatron.library import TransformerConfig
from seamlessflow.trainer.parallelism import unproven_model


def dimensions(model: PreTrainedModel, ranks: int) -> Dimensions:
    """Return the dimensions of a model divided over so many ranks. Raise `ModelUnusable`."""
    config = model.config
    whose = str(model.name_or_path)
    if reason := unproven_model(config.to_dict()):
        raise ModelUnusable(whose, f"{reason} (trainer.backend = megatron)")
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if (number := getattr(config, name)) % ranks:
            divided = f"trainer.megatron.tensor_parallel {ranks} does not divide its {name}"
            raise ModelUnusable(whose, f"{divided}, {number}")
    return Dimensions(
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.vocab_size,
        ranks,
    )


def transformer_config(
    config: Any, ranks: int, dtype: torch.dtype, biased: bool, normed: bool
) -> TransformerConfig:
    """Return Megatron-core's settings for a Hugging Face configuration.

    `dtype`: type in which weights are kept; `biased`: queries, keys and values have a bias;
    `normed`: queries and keys are normalised.
    """
    return TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=head_dimension(config),
        tensor_model_parallel_size=ranks,
        layernorm_epsilon=config.rms_norm_eps,
        add_qkv_bias=biased,
        qk_layernorm=normed,
        # Weights come from a file, and the model moves to its device with the role.
        use_cpu_initialization=True,
        perform_initialization=False,
        params_dtype=dtype,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        # With the default, Megatron-core warns.
        cuda_graph_scope=[],
    )


def head_dimension(config: Any) -> int:
    """Return a head's width."""
    width = getattr(config, "head_dim", None)
    return int(width or config.hidden_size // config.num_attention_heads)
