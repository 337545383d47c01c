"""A device's peak memory in two updates, against what `seamlessflow plan` says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.part import Asked, DeviceMemory, Figures, meets
from benchmarks.gpu.steps import some_chains, step, write_model
from seamlessflow.infra.device_model.model_shape import read_shape
from seamlessflow.machine import CONTEXT, total
from seamlessflow.memory.training import RankShape, rank_memory
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection

MARGIN = 0.2
"""Largest share by which a peak may differ from the plan."""
CASES: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "mixed": {"dtype": "bfloat16"},
    "recomputed": {"dtype": "bfloat16", "gradient_checkpointing": True},
    "half": {"dtype": "bfloat16", "master_dtype": "bfloat16"},
    "adapter": {"dtype": "bfloat16", "adapter": {"rank": 16}},
}
"""Trainer settings by case."""


def run(asked: Asked) -> Figures:
    """Return planned and measured MiB, and their ratio, by case; measured only on a GPU."""
    model = write_model(asked.directory / "model", asked.small)
    figures = {name: _case(asked, model, settings) for name, settings in CASES.items()}
    ratios = [case["ratio"] for case in figures.values() if "ratio" in case]
    meets(all(abs(ratio - 1) <= MARGIN for ratio in ratios), "a peak is not as planned", figures)
    return figures


def _case(asked: Asked, model: Path, changes: Mapping[str, Any]) -> dict[str, float]:
    fixed = {"device": asked.device, "mismatch_memory_mb": 0}
    settings = TrainerSection.model_validate({**fixed, **changes})
    answer = 16 if asked.small else 256
    chains = some_chains(1, 2 * answer, answer)
    tokens = len(chains[0])
    rank = RankShape(read_shape(model), tokens, tokens, asked.on_gpu, leaves=False)
    planned = total(rank_memory(rank, settings).device_parts) - CONTEXT * asked.on_gpu
    memory = DeviceMemory(asked.device)
    backend = TorchBackend(model, settings)
    backend.load(None, 0)
    backend.acquire()
    for _ in range(2):
        backend.train(step(chains, tokens, learning_rate=1e-6))
    return {"tokens": tokens, **memory.against(planned)}
