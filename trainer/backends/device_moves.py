"""Moves between a GPU and the host, for models and optimizers, when the role comes and leaves.

A tensor that leaves a GPU always goes to the same page-locked host memory. The GPU copies to and
from such memory by itself. New memory costs a page fault for each 4 KiB, and the driver copies
through a small buffer. `docs/gpu.md` has the times for both ways.
"""

import logging
import weakref

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

_log = logging.getLogger(__name__)
_LOCKED_FROM = 2**20
"""A tensor with so many bytes or more gets locked memory; all smaller ones together have few."""
_HOST = torch.device("cpu")


class DeviceMoves:
    """Moves to a device and back. On a CPU all stays where it is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._places: dict[tuple[int, str], Tensor] = {}
        """Each tensor's host memory, by its parameter's id and its moment's name ("": a weight).

        The parameters live as long as their model, so their ids stay.
        """

    def to_device(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Move a model and its optimizer's moments to the device."""
        # No wait: the device computes only after the copies, which were queued first.
        nn.Module.to(model, self._device, non_blocking=True)
        for _, state, moment in _moments(optimizer):
            state[moment] = state[moment].to(self._device, non_blocking=True)

    def to_host(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Move both to the host, and wait until they are there."""
        if self._device.type == "cpu":
            return
        # `nn.Module.to` would take new memory, and FSDP2 follows what goes through `_apply`.
        model._apply(self._to_its_place)  # type: ignore[no-untyped-call]
        for parameter, state, moment in _moments(optimizer):
            state[moment] = self._copied(state[moment], (id(parameter), moment))
        torch.accelerator.synchronize(self._device)

    def _to_its_place(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, nn.Parameter):
            return self._copied(tensor, (id(tensor), ""))
        return tensor.to(_HOST)

    def _copied(self, tensor: Tensor, key: tuple[int, str]) -> Tensor:
        if tensor.device.type == "cpu":  # a weight that two modules share comes twice
            return tensor
        place = self._places.get(key)
        if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
            place = self._places[key] = _locked(torch.empty_like(tensor, device=_HOST))
        return place.copy_(tensor, non_blocking=True)


def _moments(optimizer: Optimizer) -> list[tuple[Tensor, dict[str, Tensor], str]]:
    """Return each moment's parameter, state and name; step counts stay where AdamW has them."""
    return [
        (parameter, state, moment)
        for parameter, state in optimizer.state.items()
        for moment in state
        if moment != "step"
    ]


def _locked(place: Tensor) -> Tensor:
    """Return the tensor; its memory is locked if it is large and a CUDA GPU is there."""
    memory = place.to_local() if isinstance(place, DTensor) else place
    if memory.nbytes >= _LOCKED_FROM and torch.cuda.is_available():
        # Torch's own allocator of such memory takes up to twice as much.
        cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        error = cuda.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
        weakref.finalize(place, cuda.cudaHostUnregister, memory.data_ptr())
        if int(error):
            _log.warning("%d bytes of the host cannot be page-locked: %s", memory.nbytes, error)
    return place
