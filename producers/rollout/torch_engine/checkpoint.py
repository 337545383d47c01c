"""Reading new weights: everything is read and checked before the model is touched.

Expects the safetensors files of a Hugging Face directory, with the model's own parameter names. A
name that shares its storage with another one (tied embeddings) may be left out.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow.producers.rollout.engine.errors import WeightsRejected


def read_weights(directory: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return exactly the tensors for `state` (a model's state dict), on the host.

    Raises `WeightsRejected` if a file cannot be read, a value is not finite, or names or shapes
    differ from the model's. It also does if names that share one tensor in the model have different
    values.
    """
    tensors = _load(directory)
    groups = _shared(state)
    missing = [names[0] for names in groups if not any(name in tensors for name in names)]
    _reject_names(directory, "missing", missing)
    _reject_names(directory, "unknown", sorted(tensors.keys() - state.keys()))
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            shapes = f"{list(tensor.shape)}, the model's is {list(state[name].shape)}"
            raise WeightsRejected(directory, f"{name} has the shape {shapes}")
        if not _finite(tensor):
            raise WeightsRejected(directory, f"{name} has values that are not finite")
    for names in groups:
        first, *others = (tensors[name] for name in names if name in tensors)
        if not all(torch.equal(first, other) for other in others):
            raise WeightsRejected(directory, f"{', '.join(names)} are tied but differ")
    return tensors


def _finite(tensor: Tensor) -> bool:
    """Return whether all values are finite: the least and the greatest are NaN if any one is."""
    return not tensor.numel() or bool(torch.isfinite(torch.stack(tensor.aminmax())).all())


def _load(directory: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsRejected(directory, "there is no safetensors file")
    for file in files:
        try:
            tensors.update(load_file(file))
        except (OSError, SafetensorError) as error:
            raise WeightsRejected(directory, f"{file.name} cannot be read: {error}") from error
    return tensors


def _shared(state: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the names of a state dict, grouped by the tensor that they name."""
    groups: defaultdict[tuple[int, torch.Size], list[str]] = defaultdict(list)
    for name, tensor in state.items():  # tied parameters share their storage
        groups[tensor.data_ptr(), tensor.shape].append(name)
    return list(groups.values())


def _reject_names(directory: Path, what: str, names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise WeightsRejected(directory, f"{what} tensors: {shown}")
