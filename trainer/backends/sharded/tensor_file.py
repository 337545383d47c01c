"""A safetensors file that several ranks write at the same time, each its parts of the tensors.

Where each tensor stands follows from names, types and shapes, so no rank needs the others' values,
or a word from them: the bytes are those that `safetensors.torch.save_file` writes of whole tensors.
The format: https://huggingface.co/docs/safetensors (a length, a header in JSON, the tensors).
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from struct import Struct

import torch

from seamlessflow.trainer.backends.sharded.parts import Parts, TensorPart

MOST_ELEMENTS = 1 << 22
"""Most elements that are converted or moved to the host at a time: 16 MiB in float32."""
_LENGTH = Struct("<Q")
_ALIGNED = 8
_ORDER = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16),
    *(torch.int32, torch.float32, torch.float64, torch.int64),
)
"""Types in the order of the format's library: tensors of the last come first in a file."""
_KINDS = {"bool": "BOOL", "uint": "U", "int": "I", "float": "F", "bfloat": "BF"}
_DIGITS = "0123456789"


def write_tensors(
    path: Path,
    parts: Parts,
    leads: bool,
    dtype: torch.dtype | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write this rank's parts of a file's tensors, as `dtype` if one is given, and force them to
    disk. The file is whole once each rank has returned.

    All ranks name the same tensors; rank 0 (`leads`) also writes the header, and what is whole.
    Raise OSError.
    """
    types = {name: dtype or part.values.dtype for name, part in parts.items()}
    header, places, size = _layout(parts, types, metadata)
    with _opened(path) as file:
        if leads:
            os.ftruncate(file, size)
            _write(file, memoryview(header), 0)
        for name, place in places.items():
            if leads or not parts[name].whole:
                _write_part(file, place, parts[name], types[name])
        os.fsync(file)


def _layout(
    parts: Parts, types: Mapping[str, torch.dtype], metadata: Mapping[str, str] | None
) -> tuple[bytes, Mapping[str, int], int]:
    """Return a file's header, the place of each tensor and the size of all."""
    facts: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begins, end = {}, 0
    for name in sorted(parts, key=lambda name: (-_ORDER.index(types[name]), name.encode())):
        begins[name], shape = end, parts[name].shape
        end += prod(shape) * types[name].itemsize
        offsets = [begins[name], end]
        facts[name] = {"dtype": _type_name(types[name]), "shape": shape, "data_offsets": offsets}
    text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNED)
    start = _LENGTH.size + len(text)
    places = {name: start + begin for name, begin in begins.items()}
    return _LENGTH.pack(len(text)) + text, places, start + end


def _type_name(dtype: torch.dtype) -> str:
    """Return the format's name of a type: a kind and a number of bits."""
    name = str(dtype).removeprefix("torch.")
    kind = name.rstrip(_DIGITS)
    return f"{_KINDS[kind]}{name.removeprefix(kind)}"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file in which other processes write too, made if it is not there."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            # Without a lock a client of NFS writes whole pages, zeros in place of another host's.
            fcntl.lockf(file, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno != errno.ENOSYS:  # else the file system has none, and needs none
                raise
        yield file
    finally:
        os.close(file)


def _write_part(file: int, place: int, part: TensorPart, dtype: torch.dtype) -> None:
    """Write a part of a tensor that begins at `place`."""
    if not part.values.numel():
        return
    size, runs = dtype.itemsize, prod(part.shape[: part.dimension])
    apart = prod(part.shape[part.dimension :]) * size
    place += part.first * prod(part.shape[part.dimension + 1 :]) * size
    # Elements of a run follow each other in the whole tensor; rows are one run.
    values = part.values.reshape(runs, -1)
    length = values.shape[1]
    most = max(1, MOST_ELEMENTS // length)
    for run in range(0, runs, most):
        for begin in range(0, length, MOST_ELEMENTS):
            block = values[run : run + most, begin : begin + MOST_ELEMENTS]
            host = block.to("cpu", dtype).contiguous().view(torch.uint8).numpy()
            for number, data in enumerate(host, run):
                _write(file, memoryview(data), place + number * apart + begin * size)


def _write(file: int, data: memoryview, place: int) -> None:
    while data:
        written = os.pwrite(file, data, place)
        data, place = data[written:], place + written
