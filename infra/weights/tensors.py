"""Tensors of a weights directory, read from its safetensors files without torch."""

import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import xxhash

_LENGTH = struct.Struct("<Q")


def tensors_hash(directory: Path) -> str:
    """Return the hex xxh3-128 of all tensors, whatever files they are in and in which order.

    Raises `OSError` and `ValueError` for files that are no safetensors.
    """
    digest = xxhash.xxh3_128()
    for name, one in sorted(tensor_hashes(directory).items()):
        digest.update(f"{name} {one}\n".encode())
    return digest.hexdigest()


def tensor_hashes(directory: Path) -> Mapping[str, str]:
    """Return the hex xxh3-128 of each tensor's type, shape and bytes, by its name."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            found.update(_hashes(view))
    return found


def _hashes(view: memoryview) -> Iterator[tuple[str, str]]:
    """Yield names and hashes of a file: a length, a JSON header of that many bytes, the tensors."""
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    start = _LENGTH.size + length
    header = json.loads(bytes(view[_LENGTH.size : start]))
    for name, facts in header.items():
        if name != "__metadata__":
            begin, end = facts["data_offsets"]
            digest = xxhash.xxh3_128(f"{facts['dtype']}{facts['shape']}".encode())
            digest.update(view[start + begin : start + end])
            yield name, digest.hexdigest()
