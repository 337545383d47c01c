"""A step's messages between a gang's processes, as named arrays, and back. Pure.

The first phase asks for micro-batches' columns and answers; the second gives a rank its share.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.calls import Arrays
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import MicroBatch, empty, shard

_NAMES = tuple(field.name for field in fields(MicroBatch) if field.name != "columns")
_COLUMNS = "columns"


def shares(step: StepInput, ranks: int) -> list[StepInput]:
    """Return each rank's share: its part of the micro-batches, and all samples."""
    return [
        StepInput(mine, step.samples, step.version, step.learning_rate)
        for mine in shard(step.micro_batches, ranks)
    ]


def to_arrays(step: StepInput, total: int) -> dict[str, NDArray[np.generic]]:
    """Return a rank's share as arrays; `total`: trained tokens on all ranks."""
    arrays: dict[str, NDArray[np.generic]] = {
        "numbers": np.array([step.version, total, len(step.micro_batches), len(step.samples)]),
        "learning_rate": np.array([step.learning_rate]),
    }
    for kind, batches in (("batch", step.micro_batches), ("sample", step.samples)):
        for place, batch in enumerate(batches):
            for name in _NAMES:
                if (array := getattr(batch, name)) is not None:
                    arrays[f"{kind}/{place}/{name}"] = array
            for column, array_N in batch.columns.items():
                arrays[f"{kind}/{place}/{_COLUMNS}/{column}"] = array_N
    return arrays


def from_arrays(arrays: Arrays) -> tuple[StepInput, int]:
    """Return the share and the total from the arrays that `to_arrays` returned."""
    version, total, batches, samples = (int(number) for number in arrays["numbers"])
    step = StepInput(
        _batches(arrays, "batch", batches),
        _batches(arrays, "sample", samples),
        version,
        float(arrays["learning_rate"][0]),
    )
    return step, total


def question(batches: Sequence[MicroBatch], columns: Sequence[Column]) -> Arrays:
    """Return the arrays that ask for micro-batches' columns."""
    names = np.frombuffer(",".join(columns).encode(), np.uint8)
    return {**to_arrays(StepInput(batches, (), 0, 0.0), 0), _COLUMNS: names}


def asked(arrays: Arrays) -> tuple[Sequence[MicroBatch], list[Column]]:
    """Return the micro-batches and the columns that `question` asked for."""
    names = np.asarray(arrays[_COLUMNS]).tobytes().decode().split(",")
    return from_arrays(arrays)[0].micro_batches, [Column(name) for name in names]


def answer(annotated: AnnotatedColumns) -> Arrays:
    """Return columns as arrays."""
    return {
        f"{name}/{n}": array for name, arrays in annotated.items() for n, array in enumerate(arrays)
    }


def answered(arrays: Arrays, columns: Sequence[Column], count: int) -> AnnotatedColumns:
    """Return columns for `count` micro-batches, from the arrays that `answer` returned."""
    return {
        name: [np.asarray(arrays[f"{name}/{n}"], np.float32) for n in range(count)]
        for name in columns
    }


def dealt(batches: Sequence[MicroBatch], ranks: int) -> list[list[MicroBatch]]:
    """Return each rank's micro-batches, dealt in turn, equally many for each."""
    filled = [*batches, *([empty()] * (-len(batches) % ranks))]
    return [filled[rank::ranks] for rank in range(ranks)]


def collected(
    of_ranks: Sequence[AnnotatedColumns], columns: Sequence[Column], count: int
) -> AnnotatedColumns:
    """Return the columns for `count` micro-batches in order, from those that each rank computed."""
    ranks = len(of_ranks)
    return {name: [of_ranks[n % ranks][name][n // ranks] for n in range(count)] for name in columns}


def _batches(arrays: Arrays, kind: str, count: int) -> Sequence[MicroBatch]:
    batches = []
    for place in range(count):
        values: dict[str, Any] = {name: arrays.get(f"{kind}/{place}/{name}") for name in _NAMES}
        columns = {
            name: np.asarray(arrays[key], np.float32)
            for name in Column
            if (key := f"{kind}/{place}/{_COLUMNS}/{name}") in arrays
        }
        batches.append(MicroBatch(**values, columns=columns))
    return batches
