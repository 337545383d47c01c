"""Random models' updates, bfloat16 over float32 master weights: how fast, and how much memory."""

import gc
import time

import torch

from benchmarks.gpu.part import Asked, Figures, meets, wait_for
from benchmarks.gpu.steps import some_chains, step, write_shape
from seamlessflow.infra.device_model.model_shape import read_shape
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection

STEPS = 12
BUDGETS = (4096, 16384)
"""Tokens in a micro-batch."""
_CLONING = {"surrogate": "cloning"}


def run(asked: Asked) -> Figures:
    """Return losses, tokens and floating-point operations a second, and the memory's peak.

    Figures are by model, and by the tokens in a micro-batch.
    """
    names = ("tiny",) if asked.small else ("qwen3-0.6b", "qwen3-1.7b")
    figures = {
        f"{name} {budget}": _updates(asked, name, budget) for name in names for budget in BUDGETS
    }
    falls = all(figure["last_loss"] < figure["first_loss"] for figure in figures.values())
    meets(falls, "a loss did not fall", figures)
    return figures


def _updates(asked: Asked, name: str, budget: int) -> dict[str, float]:
    gc.collect()
    model = asked.directory / name
    if not model.exists():
        write_shape(model, name, torch.bfloat16)
    chosen = {"device": asked.device, "compute_dtype": "bfloat16", "loss": _CLONING}
    backend = TorchBackend(model, TrainerSection.model_validate(chosen))
    backend.load(None, 0)
    backend.acquire()
    sessions, prompt, answer = (4, 32, 16) if asked.small else (16, 512, 128)
    update = step(some_chains(sessions, prompt, answer), budget, "packed", 1e-4)
    if asked.on_gpu:
        torch.cuda.reset_peak_memory_stats(asked.device)
    losses, seconds = [], []
    for _ in range(STEPS):
        began = time.perf_counter()
        losses.append(backend.train(update)["loss"])
        wait_for(asked.device)
        seconds.append(time.perf_counter() - began)
    tokens = sum(batch.ids_BT.size for batch in update.micro_batches)
    parameters = read_shape(model).parameters
    best = min(seconds)
    return {
        "parameters": parameters,
        "tokens_a_step": tokens,
        "tokens_a_second": round(tokens / best),
        # Six operations a parameter and token; attention comes on top.
        "tflops": round(6 * parameters * tokens / best / 1e12, 1),
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
        **_memory(asked),
    }


def _memory(asked: Asked) -> dict[str, int]:
    if not asked.on_gpu:
        return {}
    return {"peak_mib": torch.cuda.max_memory_allocated(asked.device) // 2**20}
