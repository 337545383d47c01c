"""A rank's part of a tensor, and its place in the whole tensor.

Ranks that have divided a model copy, write and read such parts. So no rank needs a whole tensor.
Called by the back ends and by the modules that read and write their files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor's consecutive rows, or slices in another dimension, or the whole tensor."""

    values: Tensor
    """Elements, in the whole tensor's shape except for the divided dimension; there may be none."""
    shape: tuple[int, ...]
    """The whole tensor's shape."""
    dimension: int = 0
    """The dimension in which it is divided."""
    first: int = 0
    """The first row's (or slice's) place in the whole tensor."""

    @property
    def whole(self) -> bool:
        """Return whether it is all of the tensor."""
        return tuple(self.values.shape) == self.shape

    def first_of(self, number: int) -> Self:
        """Return this part if `number` is 0 (the first rank that has it), else an empty part."""
        empty = self.values.narrow(self.dimension, 0, 0) if number else self.values
        return replace(self, values=empty)

    def copied(self) -> Self:
        """Return a copy on the host."""
        values = self.values.detach()
        # On a tensor that is on the host, `cpu` returns that itself, and the next step changes it.
        on_host = values.clone() if values.device.type == "cpu" else values.cpu()
        return replace(self, values=on_host.contiguous())


TensorParts = Mapping[str, TensorPart]
"""A rank's parts of several tensors, by name."""
FileParts = Mapping[str, TensorParts]
"""Parts by file name."""


def part_of(tensor: Tensor) -> TensorPart:
    """Return this rank's part of a tensor, which shares its memory. Raise ValueError.

    FSDP2 divides tensors by rows, as `torch.chunk` does.
    """
    if not isinstance(tensor, DTensor):
        return TensorPart(tensor.detach(), tuple(tensor.shape))
    (placement,) = tensor.placements
    if placement != Shard(0):
        raise ValueError(f"a tensor is placed as {placement}, not by rows")
    mesh = tensor.device_mesh
    local = tensor.to_local().detach()
    first = mesh.get_local_rank() * -(-len(tensor) // mesh.size())
    return TensorPart(local, tuple(tensor.shape), first=first if len(local) else 0)


@torch.no_grad()
def read_part(file: Any, name: str, part: TensorPart) -> None:
    """Read a part of a tensor from an open safetensors file into its memory.

    Raise ValueError if the tensor has another shape there.
    """
    saved = file.get_slice(name)
    if saved.get_shape() != list(part.shape):
        raise ValueError(f"{name} has the shape {saved.get_shape()}, not {list(part.shape)}")
    if part.whole:
        part.values.copy_(file.get_tensor(name))
    elif part.values.numel():
        end = part.first + part.values.shape[part.dimension]
        all_before = (slice(None),) * part.dimension
        part.values.copy_(saved[(*all_before, slice(part.first, end))])
