"""The trainer's calls to its gang, the ranks' replies, and the bytes of both. Pure.

The trainer calls the first rank, over TCP (`trainer/link.py`). The first rank repeats calls that
concern all ranks to the others, over gloo (`gang.py`). A message is two lengths, a JSON object and
named arrays in safetensors form (no pickle).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load, save

from seamlessflow.trainer.backends.backend import NO_STEP, Machine
from seamlessflow.trainer.data.packing import Layout

Arrays = Mapping[str, NDArray[np.generic]]
_LENGTHS = Struct("!IQ")
MOST_HEADER_BYTES = 1_000_000
"""Longest header; a longer one comes from a program outside this project."""


class GangCallName(StrEnum):
    """The `Backend` calls that the trainer makes, and its last message (`FINISH` or `END`).

    The other ranks do not get the last message. They get `SAVE` from `GangSaves`, and all other
    calls from the first rank.
    """

    LOAD = "load"
    ANNOTATE = "annotate"
    TRAIN = "train"
    REMEMBER = "remember"
    WRITE = "write"
    SNAPSHOT = "snapshot"
    SAVE = "save"
    REST = "rest"
    FINISH = "finish"
    """The run is over."""
    END = "end"
    """The trainer was asked to end before the run was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A rank's first message."""

    token: str = field(repr=False)
    worker: str
    machine: Machine
    dtype: str
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to a rank with the right token."""

    trainer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCall:
    """A call by the trainer, or by the first rank.

    The first rank replies to all the trainer's calls but `REST` and the last message. Other ranks
    reply only where the first one needs it.
    """

    name: GangCallName
    number: int = 0
    path: str = ""
    """A directory that both processes reach; empty: none."""
    version: int = 0
    step: int = NO_STEP
    """For `REST`: the step that is over."""

    @property
    def directory(self) -> Path | None:
        """Return the directory, or None if the call has none."""
        return Path(self.path) if self.path else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A call's result, or the error with which the rank ends."""

    number: int = 0
    """The call's number, by which the trainer tells overlapping calls apart."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    remembered: tuple[int, ...] = ()
    """Versions that the gang has copied."""
    error: str = ""
    chains: tuple[int, ...] | None = None
    """Chains in an update that failed (`UpdateFailed`); else None."""


GangMessage = Hello | Welcome | GangCall | Reply
_KINDS = {kind.__name__: kind for kind in (Hello, Welcome, GangCall, Reply)}


def encoded(message: GangMessage, arrays: Arrays) -> bytes:
    """Return a message with its arrays as bytes."""
    # Not orjson: a metric may be NaN.
    header = json.dumps({"kind": type(message).__name__, **asdict(message)}).encode()
    body = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return _LENGTHS.pack(len(header), len(body)) + header + body


def received(receive: Callable[[int], bytes]) -> tuple[GangMessage, Arrays]:
    """Return a stream's next message; `receive` returns the given number of its bytes.

    Raises `ValueError` for bytes that are no message, and the errors of `receive`.
    """
    header, body = _LENGTHS.unpack(receive(_LENGTHS.size))
    if header > MOST_HEADER_BYTES:
        raise ValueError(f"a header of {header} bytes")
    values = json.loads(receive(header))
    if not isinstance(values, dict) or values.get("kind") not in _KINDS:
        raise ValueError("no message of this project")
    kind = _KINDS[values.pop("kind")]
    try:
        return _reader(kind).validate_python(values), load(receive(body))
    except SafetensorError as error:
        raise ValueError(str(error)) from error


@cache
def _reader(kind: type[GangMessage]) -> TypeAdapter[GangMessage]:
    return TypeAdapter(kind)
