"""Models with random weights, and steps to train them on."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.recorded.shared_prompts import chain
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.packing import Layout, pack

VOCABULARY = 4096
"""Tokens that steps have; a model may know more."""


SHAPES = {"tiny": (2, 64), "qwen3-0.6b": (28, 1024), "qwen3-1.7b": (28, 2048)}
"""Layers and width by model name."""


def write_model(directory: Path, small: bool) -> Path:
    """Write a random model with Qwen3-0.6B's shape, or a tiny one, and return its directory."""
    return write_shape(directory, usual_shape(small))


def usual_shape(small: bool) -> str:
    """Return the name of the shape that most parts take: on a GPU, or `small`."""
    return "tiny" if small else "qwen3-0.6b"


def write_shape(
    directory: Path, name: str, dtype: torch.dtype = torch.float32, **changes: object
) -> Path:
    """Write what `random_model` returns as `dtype`, and return its directory."""
    # A GPU draws a billion numbers in a moment.
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = random_model(name, **changes)
        torch.nn.Module.to(model, dtype).save_pretrained(directory)
    return directory


def random_model(name: str, **changes: object) -> Qwen3ForCausalLM:
    """Return a model with one of `SHAPES`, and with random weights in float32.

    `changes` are settings for its configuration.
    """
    torch.manual_seed(0)
    layers, width = SHAPES[name]
    small = name == "tiny"
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY if small else 151936,
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4 if small else 16,
        "num_key_value_heads": 2 if small else 8,
        "head_dim": 32 if small else 128,  # the least that vLLM computes on a CPU
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    return Qwen3ForCausalLM(Qwen3Config(**settings | changes))


def some_chains(sessions: int, prompt: int, answer: int) -> list[Chain]:
    """Return sessions: a prompt, and two answers with a result between; lengths in tokens."""
    random = np.random.default_rng(0)
    ids = random.integers(0, VOCABULARY, prompt, np.int32)
    return [chain(random, ids, f"g-0.{number}.0", answer) for number in range(sessions)]


def step(
    chains: list[Chain], budget: int, layout: Layout = "padded", learning_rate: float = 1e-3
) -> StepInput:
    """Return one update on all chains, in micro-batches of `budget` tokens."""
    return StepInput(pack(chains, budget, layout), [], 0, learning_rate)
