"""The engine's new weights: everything is read and checked before the model is touched.

A whole model comes in a Hugging Face directory's safetensors files, with the model's own parameter
names. A name that shares its storage with another one (tied embeddings) may be left out.

An adapter is added to the layers' outputs. The base's weights stay as they are, so nothing drifts
over versions. In half precision, a change too small for a merged weight is not lost.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from seamlessflow.infra.weights.adapter import TENSORS, AdapterInvalid, fitting, layers, tensor_name
from seamlessflow.producers.rollout.engine.errors import WeightsRejected

_A = "adapter_A"
_B = "adapter_B"


def read_weights(directory: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return exactly the tensors for `state` (a model's state dict), on the host.

    Raises `WeightsRejected` for unreadable files, values that are not finite, and names or shapes
    that differ from the model's. Names that share one tensor in the model must have equal values.
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
    """Return a state dict's names, grouped by the tensor that they name."""
    groups: defaultdict[tuple[int | str, torch.Size], list[str]] = defaultdict(list)
    for name, tensor in state.items():  # tied parameters share their storage
        groups[name if tensor.is_meta else tensor.data_ptr(), tensor.shape].append(name)
    return list(groups.values())


def _reject_names(directory: Path, what: str, names: list[str]) -> None:
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise WeightsRejected(directory, f"{what} tensors: {shown}")


@dataclass(frozen=True, slots=True)
class Adapter:
    """Each layer's matrices A (rank x inputs) and B (outputs x rank), on the host."""

    scale: float
    halves: Mapping[str, tuple[Tensor, Tensor]]


def read_adapter(directory: Path, state: Mapping[str, Tensor]) -> Adapter:
    """Return a directory's adapter, for a model with this state dict.

    Raises `WeightsRejected` if it cannot be read, is for another model, or is not finite.
    """
    try:
        tensors = load_file(directory / TENSORS)
        config = fitting(directory, _shapes(tensors), _shapes(state))
        names = layers(directory, set(tensors))
    except (OSError, SafetensorError, AdapterInvalid) as error:
        raise WeightsRejected(directory, f"the adapter cannot be used: {error}") from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise WeightsRejected(directory, f"{name} has values that are not finite")
    return Adapter(
        config.scale,
        {
            layer: (tensors[tensor_name(layer, "A")], tensors[tensor_name(layer, "B")])
            for layer in names
        },
    )


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


class AdaptedLayers:
    """A model's layers that have an adapter now."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handles: dict[str, RemovableHandle] = {}

    def put(self, adapter: Adapter | None) -> None:
        """Replace the adapter; None: only the base."""
        for name, handle in self._handles.items():
            handle.remove()
            module = self._model.get_submodule(name)
            delattr(module, _A)
            delattr(module, _B)
        self._handles = {} if adapter is None else dict(self._added(adapter))

    def _added(self, adapter: Adapter) -> Iterator[tuple[str, RemovableHandle]]:
        embedding = next(self._model.parameters())  # the layers' own weights may be packed
        for name, (a, b) in adapter.halves.items():
            module = self._model.get_submodule(name)
            # As buffers they move with the model, and no state dict has them.
            for half, tensor in ((_A, a), (_B, b)):
                placed = tensor.to(embedding)
                module.register_buffer(half, placed, persistent=False)
            yield name, module.register_forward_hook(_add(adapter.scale))


def _add(scale: float) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    """Return a hook that adds scale B A x to a layer's output, as the trainer does."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        a = module.get_buffer(_A)
        b = module.get_buffer(_B)
        return output + functional.linear(functional.linear(inputs[0], a), b) * scale

    return hook
