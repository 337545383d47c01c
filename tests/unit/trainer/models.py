"""A tiny causal model in a Hugging Face directory, and tokens sampled from it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 32


def write_tiny(directory: Path, seed: int = 0) -> Path:
    """Random weights of a two-layer model with a vocabulary of 32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    return directory


def open_tiny(directory: Path) -> PreTrainedModel:
    """The model of a directory."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory)
    return model


@torch.no_grad()
def logprobs(model: PreTrainedModel, ids: Sequence[int]) -> list[float]:
    """Log-prob of each token given those before it; the first one's is 0."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    found = logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    return [0.0, *found.tolist()]


@torch.no_grad()
def sample(model: PreTrainedModel, prompt: Sequence[int], length: int) -> list[int]:
    """`length` tokens behind the prompt, drawn at temperature 1."""
    ids = list(prompt)
    for _ in range(length):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        ids.append(int(torch.multinomial(logits.softmax(-1), 1)))
    return ids[len(prompt) :]
