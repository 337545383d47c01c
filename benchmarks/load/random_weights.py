"""Random weights with a wanted size: tensor files, and a small model."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_MB = 1_000_000
_FILE_MB = 1_000
_ROWS = 1024
_VOCABULARY = 4096


def write_model(
    directory: Path, size_mb: int, dtype: torch.dtype, changed: float = 0.0
) -> dict[str, Tensor]:
    """Write gigabyte files with random tensors; return a state with place for them.

    `changed`: share of the elements whose last bit differs from a call without it.
    """
    random, later = (np.random.default_rng(seed) for seed in (0, 1))
    state = {}
    for number, start in enumerate(range(0, size_mb, _FILE_MB)):
        elements = min(_FILE_MB, size_mb - start) * _MB // dtype.itemsize
        parts = max(1, elements // (_ROWS * _ROWS * 8))
        tensors = {}
        for part in range(parts):
            values = random.standard_normal((elements // parts // _ROWS, _ROWS), np.float32)
            name = f"layer.{number}.{part}"
            tensors[name] = torch.from_numpy(values).to(dtype)
            if changed:
                bits = tensors[name].view(torch.int16 if dtype.itemsize == 2 else torch.int32)
                bits[torch.from_numpy(later.random(values.shape, np.float32) < changed)] ^= 1
            state[name] = torch.empty_like(tensors[name])
        save_file(tensors, directory / f"model-{number:05d}.safetensors")
    return state


def small_model(size_mb: int) -> PreTrainedModel:
    """Return a model with about that size in float32, with random weights."""
    torch.manual_seed(0)
    hidden = 512
    layer = hidden * hidden * (3 * 3 + 4) * 4  # bytes: three matrices of the MLP, four of attention
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=_VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=max(1, (size_mb * _MB - _VOCABULARY * hidden * 4) // layer),
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return model
