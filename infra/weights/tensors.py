"""A weights directory's tensors, hashed from its safetensors files' bytes without torch."""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

_LENGTH = struct.Struct("<Q")
_PART_BYTES = 1024 * 1024
_LONGEST_HEADER = 100_000_000  # as in the safetensors library


def tensors_hash(directory: Path) -> str:
    """Return the hex xxh3-128 of all tensors, whatever files they are in and in which order.

    Raises `OSError` and `ValueError` for files that are no safetensors.
    """
    return hash_of(tensor_hashes(directory))


def hash_of(tensors: Mapping[str, str]) -> str:
    """Return the hex xxh3-128 over all tensors' hashes by name."""
    digest = xxhash.xxh3_128()
    for name, tensor_hash in sorted(tensors.items()):
        digest.update(f"{name} {tensor_hash}\n".encode())
    return digest.hexdigest()


def tensor_hashes(directory: Path) -> Mapping[str, str]:
    """Return the hex xxh3-128 of each tensor's type, shape and bytes, by its name."""
    hashes: dict[str, str] = {}
    part = memoryview(bytearray(_PART_BYTES))
    for path in sorted(directory.glob("*.safetensors")):
        tensors = TensorHasher()
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(part):
                tensors.update(part[:size])
        hashes.update(tensors.hexdigests())
    return hashes


@dataclass(slots=True)
class _Tensor:
    """A tensor with bytes not seen yet; they go from `begin` to `end` behind the header."""

    name: str
    begin: int
    end: int
    digest: Any


class TensorHasher:
    """The hashes of a file's tensors, from its bytes in order.

    The bytes are a length, a JSON header that long, and the tensors.
    """

    def __init__(self) -> None:
        self._head = bytearray()
        self._place = -1
        self._waiting: list[_Tensor] = []
        self._found: dict[str, str] = {}
        self._fault = ""

    def update(self, part: memoryview) -> None:
        """Take the next bytes. Does not raise: `hexdigests` tells what is wrong with them."""
        if self._fault:
            return
        if self._place < 0:
            self._head += part
            try:
                part = self._behind_header()
            except ValueError as error:
                self._fault = str(error)
        while self._waiting and self._waiting[-1].begin < self._place + len(part):
            tensor = self._waiting[-1]
            begin, end = (max(0, place - self._place) for place in (tensor.begin, tensor.end))
            tensor.digest.update(part[begin:end])
            if tensor.end > self._place + len(part):
                break
            self._end(self._waiting.pop())
        if self._place >= 0:
            self._place += len(part)

    def hexdigests(self) -> Mapping[str, str]:
        """Return the hashes by name. Raises `ValueError` unless it is a whole safetensors file."""
        if self._fault:
            raise ValueError(self._fault)
        while self._waiting and self._waiting[-1].begin == self._waiting[-1].end:
            self._end(self._waiting.pop())
        if self._place < 0 or self._waiting:
            raise ValueError("a safetensors file is shorter than its header says")
        return self._found

    def _end(self, tensor: _Tensor) -> None:
        self._found[tensor.name] = tensor.digest.hexdigest()

    def _behind_header(self) -> memoryview:
        """Return what was read behind the header; nothing while the header is incomplete."""
        head = memoryview(bytes(self._head))
        size = _LENGTH.size + (_LENGTH.unpack(head[:8])[0] if len(head) >= 8 else 0)
        if size > _LONGEST_HEADER:
            raise ValueError(f"a header of safetensors has no {size} bytes")
        if len(head) < max(size, _LENGTH.size):
            return head[:0]
        tensors = _tensors(head[_LENGTH.size : size])
        # The next one is last. An empty tensor is before another one that begins at its place.
        self._waiting = sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end), reverse=True)
        self._place = 0
        self._head.clear()
        return head[size:]


def _tensors(header: memoryview) -> Iterator[_Tensor]:
    try:
        for name, facts in json.loads(bytes(header)).items():
            if name != "__metadata__":
                begin, end = facts["data_offsets"]
                digest = xxhash.xxh3_128(f"{facts['dtype']}{facts['shape']}".encode())
                yield _Tensor(name, begin, end, digest)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no header of safetensors: {error}") from error
