"""Random weights in real models' shapes, in bfloat16: sampling, and an adapter's update.

There is a part for each size, so that each has its own deadline: `shapes-1.5b`, `shapes-4b`,
`shapes-8b`. The update is made if the memory plan says that it fits on the device. Activations are
computed again if it only fits that way.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from benchmarks.gpu.part import Asked, DeviceMemory, Figures, meets, so_far, timed, wait_for
from benchmarks.gpu.steps import VOCABULARY, some_chains, step
from benchmarks.gpu.turn import Turn
from seamlessflow.infra.device_model.model_shape import ModelShape, read_shape
from seamlessflow.machine import CONTEXT, available_bytes, total
from seamlessflow.memory.engine import EngineShape, engine_memory
from seamlessflow.memory.training import RankShape, rank_memory
from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.schemas.tokens import pack
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection


@dataclass(frozen=True, slots=True)
class RealShape:
    """The shape of a model that people use."""

    name: str
    kind: str
    """Its configuration's `model_type`."""
    sizes: Mapping[str, Any]
    """Its configuration's settings."""


_QWEN: Mapping[str, Any] = {"vocab_size": 151936, "max_position_embeddings": 32768}
_QWEN3: Mapping[str, Any] = {
    **_QWEN,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
SHAPES = {
    "shapes-1.5b": RealShape(
        "Qwen2.5-1.5B",
        "qwen2",
        {
            **_QWEN,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    "shapes-4b": RealShape(
        "Qwen3-4B",
        "qwen3",
        {
            **_QWEN3,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "tie_word_embeddings": True,
        },
    ),
    "shapes-8b": RealShape(
        "Qwen3-8B",
        "qwen3",
        {
            **_QWEN3,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "tie_word_embeddings": False,
        },
    ),
}
"""By part."""
_TINY: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
UPDATES = 5
"""The first one is not measured."""
BUDGET = 4096
"""Tokens in a micro-batch."""
_RANK = 16
_CLONING = {"surrogate": "cloning"}


@dataclass(frozen=True, slots=True)
class SampledTurns:
    """Turns that an engine samples at once, each with its own prompt; lengths in tokens."""

    turns: int
    prompt: int
    answer: int

    @property
    def length(self) -> int:
        """Return the tokens in a turn with its prompt."""
        return self.prompt + self.answer


@dataclass(frozen=True, slots=True)
class FittingUpdate:
    """An update that fits on the device, by the plan."""

    trainer: TrainerSection
    step: StepInput
    planned: float
    """Bytes, without what CUDA itself keeps."""


def run(asked: Asked) -> Figures:
    """Return tokens a second for an engine and for updates, and their memory against the plan."""
    directory = asked.directory / "model"
    config = model_config(asked.part, asked.small)
    config.save_pretrained(directory)
    shape = read_shape(directory)
    figures: dict[str, object] = {
        "model": SHAPES[asked.part].name,
        "parameters": shape.parameters,
    }
    memory = DeviceMemory(asked.device)
    model = random_weights(config, asked.device)
    figures["sampling"] = _sampling(asked, model, shape, memory)
    so_far(figures)
    fitting = _fitting(asked, shape)
    if fitting is None:
        return {**figures, "update": "none: by the plan it does not fit"}
    figures["written_s"] = round(timed(partial(model.save_pretrained, directory), "cpu"), 1)
    del model
    figures["update"] = update = _updates(asked, directory, fitting)
    meets(update["last_loss"] < update["first_loss"], "the loss did not fall", figures)
    return figures


def model_config(part: str, small: bool) -> PreTrainedConfig:
    """Return the configuration for a part's model, or for a tiny model of that kind."""
    shape = SHAPES[part]
    sizes = {**shape.sizes, **_TINY} if small else shape.sizes
    # No token ends a turn.
    config: PreTrainedConfig = AutoConfig.for_model(
        shape.kind, **sizes, bos_token_id=None, eos_token_id=None
    )
    return config


def random_weights(config: PreTrainedConfig, device: str) -> PreTrainedModel:
    """Return a model with random weights in bfloat16, made on the device."""
    torch.manual_seed(0)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=torch.bfloat16
        )
    return model


def _sampling(
    asked: Asked, model: PreTrainedModel, shape: ModelShape, memory: DeviceMemory
) -> dict[str, float]:
    """Return how fast the torch engine samples, and its memory against the plan."""
    turns = SampledTurns(8, 16, 16) if asked.small else SampledTurns(64, 512, 256)
    without_turns = EngineShape(
        model=shape,
        devices=1,
        size=2,
        rows=turns.turns,
        context=turns.length,
        kv_bytes=0.0,
        on_gpu=False,  # what CUDA itself keeps is not measured
    )
    planned = engine_memory(without_turns, None)
    kv_bytes = turns.turns * planned.least_kv_bytes
    settings = TorchEngineSettings(
        device=asked.device,
        dtype="bfloat16",
        max_length=turns.length,
        max_running=turns.turns,
        max_rows=turns.turns,
        kv_bytes=round(kv_bytes),
    )
    with closing(TorchEngine(model, settings)) as engine:
        # The first passes load kernels.
        sampled(engine, SampledTurns(turns.turns, turns.prompt, 4), seed=0)
        figures = sampled(engine, turns, seed=1)
        return {**figures, **memory.against(total(planned.parts) + kv_bytes)}


def sampled(engine: Engine, turns: SampledTurns, seed: int) -> dict[str, float]:
    """Sample turns at once, to their last token; return tokens a second."""
    random = np.random.default_rng(seed)
    began = time.perf_counter()
    submitted = []
    for number in range(turns.turns):
        prompt = random.integers(0, VOCABULARY, turns.prompt, np.int32).tolist()
        sampling = SamplingParams(turns.answer, seed=number)
        submitted.append(Turn(engine, f"{seed}-{number}", pack(prompt), sampling))
    ended = [turn.ended() for turn in submitted]
    first_s = max(turn.times[0] for turn in ended) - began
    all_s = max(turn.times[-1] for turn in ended) - began
    return {
        "turns": turns.turns,
        "prompt_tokens": turns.prompt,
        "sampled_tokens": turns.answer,
        "first_tokens_s": round(first_s, 3),
        "sampled_a_second": round(turns.turns * turns.answer / all_s),
        # Without the prompts: once each turn has its first token.
        "decoded_a_second": round(turns.turns * (turns.answer - 1) / (all_s - first_s)),
    }


def _fitting(asked: Asked, shape: ModelShape) -> FittingUpdate | None:
    """Return an adapter update that fits on the device, with all activations if they fit too."""
    chains = some_chains(4, 32, 16) if asked.small else some_chains(16, 512, 128)
    update = step(chains, BUDGET, learning_rate=1e-3)
    tokens = max(batch.ids_BT.size for batch in update.micro_batches)
    longest = max(batch.ids_BT.shape[1] for batch in update.micro_batches)
    rank = RankShape(shape, tokens, longest, asked.on_gpu, leaves=False)
    for recomputed in (False, True):
        chosen = {
            "device": asked.device,
            "dtype": "bfloat16",
            "adapter": {"rank": _RANK},
            "gradient_checkpointing": recomputed,
            "loss": _CLONING,
            "mismatch_memory_mb": 0,
        }
        trainer = TrainerSection.model_validate(chosen)
        planned = total(rank_memory(rank, trainer).device_parts)
        if planned <= _memory_of(asked):
            return FittingUpdate(trainer, update, planned - CONTEXT * asked.on_gpu)
    return None


def _memory_of(asked: Asked) -> float:
    """Return the device's bytes, for a CPU only the free ones."""
    if asked.on_gpu:
        return float(torch.cuda.mem_get_info(asked.device)[1])
    return available_bytes() or float("inf")


def _updates(asked: Asked, model: Path, fitting: FittingUpdate) -> dict[str, float]:
    """Return how fast an adapter on the model is trained, and its memory against the plan."""
    memory = DeviceMemory(asked.device)
    began = time.perf_counter()
    backend = TorchBackend(model, fitting.trainer)
    backend.load(None, 0)
    backend.acquire()
    wait_for(asked.device)
    figures: dict[str, float] = {"loaded_s": round(time.perf_counter() - began, 1)}
    losses = []
    seconds = []
    for _ in range(UPDATES):
        began = time.perf_counter()
        losses.append(backend.train(fitting.step)["loss"])
        wait_for(asked.device)
        seconds.append(time.perf_counter() - began)
    tokens = sum(batch.ids_BT.size for batch in fitting.step.micro_batches)
    return {
        **figures,
        "adapter_rank": _RANK,
        "recomputed": fitting.trainer.gradient_checkpointing,
        "tokens_a_step": tokens,
        "step_s": round(min(seconds[1:]), 3),
        "tokens_a_second": round(tokens / min(seconds[1:])),
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
        **memory.against(fitting.planned),
    }
