"""Training steps on groups that share a long prompt: computed tokens and time, by layout.

The same is measured with each kind of critic. Each group has a prompt, and each of its sessions two
answers with an equally long tool result between them. The model has two layers with width 256.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from seamlessflow.schemas.arrays import Int32s
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Column, Tokens
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.settings import TrainerSection

_REPEATS = 2
_VOCABULARY = 4096
_BUDGET = 4096
CRITICS = ("model", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A step's groups; lengths are in tokens."""

    groups: int
    group_size: int
    prompt: int
    answer: int


def steps(load: Workload) -> dict[str, dict[str, float]]:
    """Return by layout what a step computes and its CPU time, the best of a few.

    For one layout, the same is returned by kind of critic.
    """
    random = np.random.default_rng(0)
    chains = [
        chain(random, prompt, f"g-{group}.{number}.0", load.answer)
        for group in range(load.groups)
        for prompt in [random.integers(0, _VOCABULARY, load.prompt, np.int32)]
        for number in range(load.group_size)
    ]
    with tempfile.TemporaryDirectory() as directory:
        model = write_model(Path(directory))
        by_layout = {layout: figures(model, chains, layout) for layout in get_args(Layout)}
        return {
            **by_layout,
            **{f"critic {kind}": of_critic(model, chains, kind) for kind in CRITICS},
        }


def chain(random: np.random.Generator, prompt: Int32s, session: str, answer: int) -> Chain:
    """Make a session: the prompt, then an answer, a result and an answer of `answer` tokens."""
    ids = np.concatenate([prompt, random.integers(0, _VOCABULARY, 3 * answer)]).astype(np.int32)
    trained = np.zeros(len(ids), np.bool_)
    trained[len(prompt) : len(prompt) + answer] = trained[-answer:] = True
    zeros, floats = np.zeros(len(ids), np.int32), np.zeros(len(ids), np.float32)
    advantages = np.where(trained, random.normal(), 0).astype(np.float32)
    tokens = Tokens(ids, trained, floats - 8, floats + 1, zeros, zeros, zeros, advantages)
    return Chain(session, ("t0",), tokens)


def write_model(directory: Path) -> Path:
    """Write a small model with random weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=_VOCABULARY,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    return directory


def figures(model: Path, chains: Sequence[Chain], layout: Layout) -> dict[str, float]:
    """Return what a step with this layout computes, and the CPU seconds that it takes."""
    backend = TorchBackend(model, TrainerSection(device="cpu", layout=layout))
    backend.load(None, 0)
    batches = pack(chains, _BUDGET, layout)
    best = min(seconds(backend, StepInput(batches, [], 0, 1e-9)) for _ in range(_REPEATS))
    tokens = sum(batch.ids_BT.size for batch in batches)
    return {"tokens": tokens, "micro_batches": len(batches), "seconds": round(best, 2)}


def of_critic(model: Path, chains: Sequence[Chain], kind: str) -> dict[str, float]:
    """Return the same with `padded` for a step with a critic, the values before it included."""
    section = {"device": "cpu", "advantage": "gae", "critic": {"kind": kind, "coefficient": 0.0}}
    backend = TorchBackend(model, TrainerSection.model_validate(section))
    backend.load(None, 0)
    step = StepInput(pack(chains, _BUDGET, "padded"), [], 0, 1e-9)
    best = min(seconds(backend, step, [Column.VALUE]) for _ in range(_REPEATS))
    passes = {"model": 3, "head": 2}[kind]
    tokens = passes * sum(batch.ids_BT.size for batch in step.micro_batches)
    return {"tokens": tokens, "micro_batches": len(step.micro_batches), "seconds": round(best, 2)}


def seconds(backend: TorchBackend, step: StepInput, columns: Sequence[Column] = ()) -> float:
    """Return a step's CPU time, the columns before it included."""
    began = time.process_time()
    if columns:
        backend.annotate(step.micro_batches, columns)
    backend.train(step)
    return time.process_time() - began
