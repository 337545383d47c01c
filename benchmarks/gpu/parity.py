"""Two updates on the device against the same on the CPU: torch and FSDP2, float32, each layout.

The role leaves and comes back between them, so that what went to the host and back counts too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.gpu.part import Asked, Figures, meets
from benchmarks.gpu.steps import some_chains, step, write_model
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.meeting import Meeting
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.settings import TrainerSection

TOLERANCE = 1e-4
_METRICS = ("loss", "grad_norm", "entropy", "mismatch_mean")
# With so large an epsilon weights move in proportion to their gradient, not by its sign.
_OPTIMIZER = {"lr": 0.05, "eps": 1.0}

Outcome = tuple[Mapping[str, float], Mapping[str, Tensor]]


def run(asked: Asked) -> Figures:
    """Return the largest differences in metrics and weights, by back end and layout."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = write_model(asked.directory / "model", small=True)
    figures = {}
    for layout in get_args(Layout):
        expected = _updated(asked, model, layout, "torch", "cpu")
        moved = _distance((expected[0], load_file(model / "model.safetensors")), expected)
        meets(moved > 10 * TOLERANCE, "the update moved no weight", {"moved": moved})
        for backend in ("torch", "fsdp2"):
            outcome = _updated(asked, model, layout, backend, asked.device)
            figures[f"{backend} {layout}"] = _distance(expected, outcome)
    meets(max(figures.values()) < TOLERANCE, f"a difference is above {TOLERANCE:g}", figures)
    return figures


def _updated(asked: Asked, model: Path, layout: Layout, backend: str, device: str) -> Outcome:
    """Return an update's metrics and weights."""
    chosen = {"backend": backend, "device": device, "layout": layout, "optimizer": _OPTIMIZER}
    settings = TrainerSection.model_validate(chosen)
    made = (
        TorchBackend(model, settings)
        if backend == "torch"
        else FsdpBackend(model, settings, Meeting(HOST, {}))
    )
    made.load(None, 0)
    update = step(some_chains(6, 24, 9), 128, layout, _OPTIMIZER["lr"])
    made.acquire()
    made.train(update)
    made.release()
    made.acquire()
    metrics = made.train(update)
    into = asked.directory / f"{backend}-{layout}-{device}".replace(":", "-")
    into.mkdir(exist_ok=True)
    made.write_weights(into)
    made.release()
    if isinstance(made, FsdpBackend):
        made.close()
    return metrics, load_file(into / "model.safetensors")


def _distance(outcome: Outcome, other: Outcome) -> float:
    """Return the largest difference; metrics differ relative to their size."""
    metrics = [
        abs(outcome[0][name] - other[0][name]) / max(1.0, abs(outcome[0][name]))
        for name in _METRICS
        if name in outcome[0]
    ]
    weights = [float((tensor - other[1][name]).abs().max()) for name, tensor in outcome[1].items()]
    return max(*metrics, *weights)
