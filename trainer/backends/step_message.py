"""The message with a rank's share of a step: `StepInput` as named arrays, and back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.backends.backend import StepInput
from trainer.data.packing import MicroBatch, shard

_NAMES = tuple(field.name for field in fields(MicroBatch))


def shares(step: StepInput, ranks: int) -> list[StepInput]:
    """Return the share of each rank: its part of the micro-batches, and all samples."""
    return [
        StepInput(mine, step.samples, step.version, step.learning_rate)
        for mine in shard(step.micro_batches, ranks)
    ]


def to_arrays(step: StepInput, total: int) -> dict[str, NDArray[np.generic]]:
    """Return a rank's share as arrays; `total` is the number of trained tokens of all ranks."""
    found: dict[str, NDArray[np.generic]] = {
        "numbers": np.array([step.version, total, len(step.micro_batches), len(step.samples)]),
        "learning_rate": np.array([step.learning_rate]),
    }
    for kind, batches in (("batch", step.micro_batches), ("sample", step.samples)):
        for place, batch in enumerate(batches):
            for name in _NAMES:
                if (array := getattr(batch, name)) is not None:
                    found[f"{kind}/{place}/{name}"] = array
    return found


def from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> tuple[StepInput, int]:
    """Return the share and the total that `to_arrays` gave these arrays for."""
    version, total, batches, samples = (int(number) for number in arrays["numbers"])
    step = StepInput(
        _batches(arrays, "batch", batches),
        _batches(arrays, "sample", samples),
        version,
        float(arrays["learning_rate"][0]),
    )
    return step, total


def _batches(
    arrays: Mapping[str, NDArray[np.generic]], kind: str, count: int
) -> Sequence[MicroBatch]:
    found = []
    for place in range(count):
        values: dict[str, Any] = {name: arrays.get(f"{kind}/{place}/{name}") for name in _NAMES}
        found.append(MicroBatch(**values))
    return found
