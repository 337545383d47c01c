"""Tensors of one step, each with a label, so that two machines can find where they part.

First come the tensors that the step begins with: parameters and moments of the optimizer. Then come
the tensors that it computes: each micro-batch's input and the gradient so far. The last layer's
gradient is first, as backward computes it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import torch
import xxhash
from torch import Tensor

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.schemas.steps import step_name
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import MicroBatch


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The tensors of a step up to a micro-batch, by label."""

    step: int
    micro_batch: int
    """The last one executed, from 0."""
    hashes: Mapping[str, str]
    """Of all, in the order in which a difference would appear."""
    values: Mapping[str, Tensor]
    """Of those there at the end: parameters, moments, and the gradient of the last micro-batch."""


def step_tensors(
    backend: TorchBackend, step: StepInput, number: int, micro_batch: int | None
) -> StepTensors:
    """Execute a step up to a micro-batch (by default the last), without an update.

    Raises `SettingsRejected` if the step does not have the micro-batch.
    """
    last = len(step.micro_batches) - 1 if micro_batch is None else micro_batch
    if not 0 <= last < len(step.micro_batches):
        count = len(step.micro_batches)
        raise SettingsRejected("--micro-batch", f"{step_name(number)} has {count}, counted from 0")
    begun = dict(_begun(backend))
    hashes = {label: _hash(value) for label, value in begun.items()}
    gradient: dict[str, Tensor] = {}
    # All micro-batches stay in the step: a gradient is a mean over its trained tokens.
    for place, gradients in zip(range(last + 1), backend.gradients(step), strict=False):
        hashes |= _inputs(step.micro_batches[place], place)
        gradient = {
            f"gradient of {name} after micro-batch {place}": value
            for name, value in reversed(list(gradients.items()))
        }
        hashes |= {label: _hash(value) for label, value in gradient.items()}
    on_host = {label: value.cpu() for label, value in gradient.items()}
    return StepTensors(number, last, hashes, begun | on_host)


def _begun(backend: TorchBackend) -> Iterator[tuple[str, Tensor]]:
    state = backend.state()
    for name, part in state[WEIGHTS].items():
        yield f"parameter {name}", part.values
    for key, part in state[OPTIMIZER].items():
        moment, _, name = key.partition("/")
        yield f"optimizer {moment} of {name}", part.values


def _inputs(batch: MicroBatch, place: int) -> dict[str, str]:
    arrays = {field.name: getattr(batch, field.name) for field in fields(batch)}
    arrays |= arrays.pop("columns")
    return {
        f"input {name} of micro-batch {place}": _hash(torch.from_numpy(value))
        for name, value in arrays.items()
        if value is not None
    }


def _hash(tensor: Tensor) -> str:
    """Return the hex xxh3-128 of a tensor's type, shape and bytes."""
    digest = xxhash.xxh3_128(f"{tensor.dtype}{list(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
