"""Model of the demo: a Qwen3 with 132,000 random parameters, which learns on a CPU in minutes."""

from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.tokenizer import Tokenizer

MAX_CONTEXT = 512
"""Most tokens of prompt and completion together; an episode has 41."""

WIDTH = 64
HEAD_DIM = 16

INITIALIZER_RANGE = 0.1
"""At the usual 0.02 a model this narrow does not learn to copy in a short, noisy warm-up."""


def make_model(directory: Path, seed: int, head_dim: int = HEAD_DIM) -> None:
    """Write a Hugging Face directory: weights (safetensors), configuration, tokenizer.

    The same seed gives the same weights; the global random state is left unchanged.
    """
    make_tokenizer(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(_config(Tokenizer.load(directory), head_dim))
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
        do_sample=True,
    )
    model.save_pretrained(directory)


def _config(tokenizer: Tokenizer, head_dim: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=WIDTH,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=WIDTH // head_dim,
        num_key_value_heads=WIDTH // head_dim // 2,
        head_dim=head_dim,
        max_position_embeddings=MAX_CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.token_id("<|endoftext|>"),
        dtype="float32",
    )
