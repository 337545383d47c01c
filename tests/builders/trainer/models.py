"""A tiny causal model in a Hugging Face directory, and tokens sampled from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import Trajectory
from tests.builders.trainer.trajectories import Run, trajectory

VOCABULARY = 32
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "initializer_range": 0.3,
}


def write_tiny(directory: Path, seed: int = 0, **sizes: int) -> Path:
    """Write random weights of a two-layer model with a vocabulary of 32, and a larger tokenizer."""
    torch.manual_seed(seed)
    config = Qwen3Config(**{**SIZES, **sizes}, tie_word_embeddings=True)
    Qwen3ForCausalLM(config).save_pretrained(directory)
    make_tokenizer(directory)
    return directory


def write_wide(directory: Path, tied: bool, family: str = "qwen3") -> Path:
    """Write random weights of two narrow layers and a vocabulary of 151,936 tokens."""
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": 151_936, "num_key_value_heads": 2}
    sizes["tie_word_embeddings"] = tied
    made: dict[str, PreTrainedModel] = {
        "qwen3": Qwen3ForCausalLM(Qwen3Config(**sizes)),
        "gemma2": Gemma2ForCausalLM(Gemma2Config(**sizes, query_pre_attn_scalar=8)),
    }
    made[family].save_pretrained(directory)
    make_tokenizer(directory)
    return directory


def write_family(directory: Path, family: str, seed: int = 0) -> Path:
    """Write random weights of two layers of `llama`, `qwen2` or `qwen3`, with two query groups.

    All that differs between dense models of the three is in one of them. The vocabulary is odd.
    """
    torch.manual_seed(seed)
    sizes = {**SIZES, "vocab_size": VOCABULARY + 1, "num_attention_heads": 4}
    sizes["num_key_value_heads"] = 2
    models: dict[str, PreTrainedModel] = {
        "llama": LlamaForCausalLM(
            LlamaConfig(
                **sizes,
                rope_parameters={
                    "rope_type": "llama3",
                    "rope_theta": 500.0,
                    "factor": 4.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            )
        ),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**{**sizes, "hidden_size": 32})),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=True)),
    }
    chosen = models[family]
    with torch.no_grad():
        # They begin as zeros and ones, which any order of them would equal.
        for parameter in chosen.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    chosen.save_pretrained(directory)
    make_tokenizer(directory)
    return directory


def write_large(directory: Path, seed: int = 0) -> Path:
    """Write random weights of 48 MB, which take a while to be read and written."""
    torch.manual_seed(seed)
    more = {"hidden_size": 512, "intermediate_size": 1792, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.05}
    Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **more, **heads})).save_pretrained(directory)
    make_tokenizer(directory)
    return directory


def write_windowed(directory: Path, window: int) -> Path:
    """Write random weights of a two-layer Gemma 2, one of whose layers sees a window of tokens."""
    torch.manual_seed(0)
    config = Gemma2Config(
        **SIZES,
        query_pre_attn_scalar=8,
        sliding_window=window,
    )
    Gemma2ForCausalLM(config).save_pretrained(directory)
    make_tokenizer(directory)
    return directory


def exact_model() -> PreTrainedModel:
    """Return a two-layer GPT-2 in float64. No part of it computes in less, as others' norms do."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3
    )
    model: PreTrainedModel = GPT2LMHeadModel(config).double()
    model.train(mode=False)
    return model


def open_tiny(directory: Path) -> PreTrainedModel:
    """The model of a directory."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory)
    return model


@torch.no_grad()
def logprobs(model: PreTrainedModel, ids: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Return the log-prob of each token given those before it; the first one's is 0."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float() / temperature
    chosen = logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    return [0.0, *chosen.tolist()]


@torch.no_grad()
def sample(model: PreTrainedModel, prompt: Sequence[int], length: int) -> list[int]:
    """Return `length` tokens that continue the prompt, sampled at temperature 1."""
    ids = list(prompt)
    for _ in range(length):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        ids.append(int(torch.multinomial(logits.softmax(-1), 1)))
    return ids[len(prompt) :]


@torch.no_grad()
def bandit(directory: Path, groups: int, group_size: int) -> list[Trajectory]:
    """Return sessions of a game, sampled from the model: after a prompt token, one below 16."""
    torch.manual_seed(1)
    model = open_tiny(directory)
    ids = (torch.arange(groups) % 8).repeat_interleave(group_size)[:, None]
    said = []
    for _ in range(2):
        table = model(input_ids=ids, use_cache=False).logits[:, -1].float().log_softmax(-1)
        drawn = torch.multinomial(table.exp(), 1)
        said.append(table.gather(-1, drawn))
        ids = torch.cat([ids, drawn], 1)
    return [
        _session(row, logprobs, *divmod(number, group_size), group_size)
        for number, (row, logprobs) in enumerate(
            zip(ids.tolist(), torch.cat(said, 1).tolist(), strict=True)
        )
    ]


def _session(
    ids: list[int], logprobs: list[float], group: int, place: int, size: int
) -> Trajectory:
    return trajectory(
        [Run(ids[:1], "prompt"), Run(ids[1:], parent=0, parent_end=1, logprobs=logprobs)],
        session_id(f"run-{group}", place, 0),
        reward=float(ids[1] < VOCABULARY // 2),
        group=f"run-{group}",
        sample=place,
        group_size=size,
    )


@torch.no_grad()
def bandit_return(directory: Path) -> float:
    """Return the exact expected return of the game under the weights of a directory."""
    model = open_tiny(directory)
    logits = model(input_ids=torch.arange(8)[:, None], use_cache=False).logits[:, -1].float()
    return float(logits.softmax(-1)[:, : VOCABULARY // 2].sum(-1).mean())
