"""Tensors from trainings, by which two machines are compared, and files with their hashes.

The file for the weights at the end is a JSON object with names and hashes. The file for one step is
JSON with `step`, `micro_batch` and `hashes`, or safetensors, which also have the tensors.

Each tensor in a step has a label, so that two machines can find where they part. First comes what
the step begins with: parameters and optimizer moments. Then comes what it computes: for each
micro-batch its input and the gradient so far. The last layer's gradient comes first, as backward
computes it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import MicroBatch

_VALUES = ".safetensors"


@dataclass(frozen=True, slots=True)
class StepTensors:
    """A step's tensors up to a micro-batch, by label."""

    step: int
    micro_batch: int
    """The last one executed, from 0."""
    hashes: Mapping[str, str]
    """Hashes over all tensors, in the order in which a difference would appear."""
    values: Mapping[str, Tensor]
    """Tensors at the end: parameters, moments, and the last micro-batch's gradient."""


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


def known_tensors(path: Path) -> Mapping[str, str] | None:
    """Return the tensor hashes in a file, or None if it is new.

    Raises `SettingsRejected` for another kind of file.
    """
    if not path.exists():
        return None
    try:
        tensors = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise SettingsRejected("--tensors", f"{path}: {error}") from error
    if "hashes" in tensors:
        raise SettingsRejected("--tensors", f"{path} is of a step: name it with --step")
    return tensors


def first_difference(expected: Mapping[str, str], tensors: Mapping[str, str]) -> str | None:
    """Return the first tensor that differs, in name order of `tensors`; None if all are equal."""
    names = [*tensors, *(name for name in expected if name not in tensors)]
    return next((name for name in names if expected.get(name) != tensors.get(name)), None)


def write_step(path: Path, tensors: StepTensors) -> None:
    """Write a step's tensors: as safetensors with their values, else their hashes as JSON."""
    content = {"step": tensors.step, "micro_batch": tensors.micro_batch, "hashes": tensors.hashes}
    text = json.dumps(content, indent=1)
    if path.suffix == _VALUES:
        # Copies: tied parameters share memory, which safetensors refuse.
        save_file(
            {name: value.clone() for name, value in tensors.values.items()}, path, {"of": text}
        )
    else:
        path.write_text(text, encoding="utf-8")


def known_step(path: Path) -> StepTensors | None:
    """Return what `write_step` wrote, or None if the file is new. Raises `SettingsRejected`."""
    if not path.exists():
        return None
    try:
        values: dict[str, Any] = {}
        if path.suffix == _VALUES:
            with safe_open(path, "pt") as file:
                text = (file.metadata() or {})["of"]
                names: list[str] = file.keys()
                values = {name: file.get_tensor(name) for name in names}
        else:
            text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        step = int(content["step"])
        micro_batch = int(content["micro_batch"])
        return StepTensors(step, micro_batch, dict(content["hashes"]), values)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise SettingsRejected("--tensors", f"{path} is of no step: {error!r}") from error


def check_place(path: Path, expected: StepTensors, step: int, micro_batch: int) -> None:
    """Raise `SettingsRejected` for another step's or micro-batch's file."""
    if (expected.step, expected.micro_batch) != (step, micro_batch):
        place = f"{step_name(expected.step)}, micro-batch {expected.micro_batch}"
        raise SettingsRejected("--tensors", f"{path} is of {place}")


def compared(path: Path, expected: StepTensors, computed: StepTensors) -> str:
    """Return the sentence about the first tensor in a step that differs from a file's.

    Raises `SettingsRejected` for another step's or micro-batch's file.
    """
    check_place(path, expected, computed.step, computed.micro_batch)
    name = first_difference(expected.hashes, computed.hashes)
    if name is None:
        return f"all {len(computed.hashes)} tensors are those of {path}"
    differing = sum(
        expected.hashes.get(label) != computed.hashes.get(label) for label in computed.hashes
    )
    how = f"{differing} of {len(computed.hashes)} tensors differ from {path}; the first: {name}"
    return how + _distance(name, expected, computed)


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
    """Return the hex xxh3-128 over a tensor's type, shape and bytes."""
    digest = xxhash.xxh3_128(f"{tensor.dtype}{list(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _distance(name: str, expected: StepTensors, computed: StepTensors) -> str:
    if name not in expected.hashes or name not in computed.hashes:
        return ", which one of them lacks"
    if name not in expected.values or name not in computed.values:
        return ""
    here = computed.values[name].double()
    other = expected.values[name].double()
    if here.shape != other.shape:
        return f", of the shapes {list(other.shape)} and {list(here.shape)}"
    apart = (here - other).abs()
    count = int((apart > 0).sum())
    largest = float(apart.max())
    size = float(other.abs().max())
    return f", {count} of {apart.numel()} numbers by at most {largest:.3g} (largest: {size:.3g})"
