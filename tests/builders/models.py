"""Tiny random models, and what a plain forward of them says about given tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

VOCABULARY = 512
CONTEXT = 512


TOKEN_BYTES = 2 * 2 * 2 * 16 * 4
"""KV of one token of `model()`: layers, keys and values, heads, head_dim, float32."""


def config(kind: str, **changes: Any) -> PreTrainedConfig:
    """Return two layers of width 64; `kind` is a model type of `transformers`."""
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.1,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    built: PreTrainedConfig = AutoConfig.for_model(kind, **{**shape, **changes})
    return built


def random_model(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """Return a random model; the same arguments give the same weights."""
    torch.manual_seed(seed)
    built: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return built


def model(kind: str = "qwen3", seed: int = 0, tied: bool = False) -> PreTrainedModel:
    """A random model of a kind."""
    return random_model(config(kind, tie_word_embeddings=tied), seed)


def large_model(kind: str = "qwen2", seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model whose layers are large enough to be packed, 256 wide; qwen2 has biases."""
    wide = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 16}
    return random_model(config(kind, initializer_range=0.03, **wide, **changes), seed)


def saved(source: PreTrainedModel, directory: Path) -> Path:
    """Save the model's safetensors and configuration in the directory and return it."""
    source.save_pretrained(directory)
    return directory


def prompt(length: int, seed: int = 0) -> list[int]:
    """Return random token ids."""
    tokens: list[int] = np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()
    return tokens


def plain_logprobs(
    source: PreTrainedModel, tokens: list[int], start: int, temperature: float = 1.0
) -> npt.NDArray[np.float32]:
    """Return the log-prob of each of `tokens[start:]` by one forward over all, without a cache."""
    with torch.inference_mode():
        logits = source(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :-1]
        logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logprobs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    rest: npt.NDArray[np.float32] = chosen[start - 1 :].numpy()
    return rest


def plain_rows(source: PreTrainedModel, tokens: list[int], start: int) -> npt.NDArray[np.float64]:
    """Return the log-probs of the whole vocabulary in the place of each of `tokens[start:]`."""
    with torch.inference_mode():
        logits = source(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, start - 1 : -1]
    rows: npt.NDArray[np.float64] = torch.log_softmax(logits.double(), dim=-1).numpy()
    return rows


def plain_top(
    source: PreTrainedModel, tokens: list[int], start: int, count: int, temperature: float = 1.0
) -> tuple[list[list[int]], list[list[float]]]:
    """The most likely tokens in the place of each of `tokens[start:]`, and their log-probabilities;
    by one forward over all."""
    with torch.inference_mode():
        logits = source(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :-1]
        tempered = logits.float() / temperature
        top = torch.log_softmax(tempered, dim=-1)[start - 1 :].topk(count, dim=-1)
    return top.indices.tolist(), top.values.tolist()


def greedy_by_generate(source: PreTrainedModel, tokens: list[int], count: int) -> list[int]:
    """Return the tokens with which `transformers`' own loop continues."""
    ids = torch.tensor([tokens])
    loop: Any = source  # its type does not say that it generates
    generated = loop.generate(
        ids,
        attention_mask=torch.ones_like(ids),  # else it takes the pad token in a prompt for padding
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )
    continued: list[int] = generated[0, len(tokens) :].tolist()
    return continued
