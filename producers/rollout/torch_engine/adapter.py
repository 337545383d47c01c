"""Adapters in the engine: read and checked first, then added to the layers' outputs.

The base's weights stay as they are, so nothing drifts over versions. In half precision a merged
weight could not hold everything, and here nothing is lost. Called by the engine.
"""

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

_A, _B = "adapter_A", "adapter_B"


@dataclass(frozen=True, slots=True)
class Adapter:
    """The matrices A (rank x inputs) and B (outputs x rank) of each layer, on the host."""

    scale: float
    halves: Mapping[str, tuple[Tensor, Tensor]]


def read_adapter(directory: Path, state: Mapping[str, Tensor]) -> Adapter:
    """Return the adapter of a directory, for a model with this state dict.

    Raises `WeightsRejected` if it cannot be read, is of another model, or not finite.
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
    """The layers of a model that have an adapter now."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._handles: dict[str, RemovableHandle] = {}

    def put(self, adapter: Adapter | None) -> None:
        """Replace the adapter; None: the base alone."""
        for name, handle in self._handles.items():
            handle.remove()
            module = self._model.get_submodule(name)
            delattr(module, _A)
            delattr(module, _B)
        self._handles = {} if adapter is None else dict(self._added(adapter))

    def _added(self, adapter: Adapter) -> Iterator[tuple[str, RemovableHandle]]:
        for name, (a, b) in adapter.halves.items():
            module = self._model.get_submodule(name)
            # As buffers they move with the model, and no state dict has them.
            for half, tensor in ((_A, a), (_B, b)):
                placed = tensor.to(next(module.parameters()))
                module.register_buffer(half, placed, persistent=False)
            yield name, module.register_forward_hook(_add(adapter.scale))


def _add(scale: float) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    """Return a hook that adds scale B A x to the output of a layer, as the trainer does."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        a, b = module.get_buffer(_A), module.get_buffer(_B)
        return output + functional.linear(functional.linear(inputs[0], a), b) * scale

    return hook
