"""A safetensors file's changed elements, against an earlier one with the same header.

The tensors' bytes are written part by part. Each part has its changed elements' positions as gaps,
a byte each (255: none among the next 255). Then come their new values. If 2 % of all two-byte
elements change, that is 3 % of the bytes, near the positions' entropy (7.1 bits each). Nothing is
computed with the values, so the result has every bit. Called by
`infra/weights/delta.py`.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seamlessflow.infra.errors import SeamlessFlowError

_LENGTH = struct.Struct("<Q")
_PART_ELEMENTS = 4 * 1024 * 1024
_AT_ONCE = 4
_FAR = 255
_SIZES = {f"{kind}{8 * size}": size for kind in "IUF" for size in (2, 4, 8)} | {"BF16": 2}

Elements = NDArray[Any]


class ChangesInvalid(SeamlessFlowError):
    """A file with changed elements, or the file that they apply to, is not what it should be."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of elements in a file that have the same size; `begin` and `end` in bytes."""

    begin: int
    end: int
    item: int

    def elements(self, content: Elements) -> Elements:
        """Return the part's elements, from all bytes of a file."""
        return content[self.begin : self.end].view(f"<u{self.item}")


def write_changes(base: Path, new: Path, target: Path) -> bool:
    """Write what differs between two files to `target`; return False if their headers differ.

    Raises `OSError`, and `ChangesInvalid` for a file that is no safetensors.
    """
    header = _header(new)
    if header != _header(base) or new.stat().st_size != base.stat().st_size:
        return False
    old, now = (np.memmap(path, np.uint8, "r") for path in (base, new))
    body = target.with_name(f"{target.name}.body")
    sizes = []
    with body.open("wb") as file:
        for pieces in _changed(old, now, _parts(new, header)):
            sizes.append([len(piece) for piece in pieces])
            file.writelines(pieces)
    text = json.dumps({"size": now.size, "parts": sizes}).encode()
    with target.open("wb") as file, body.open("rb") as written:
        file.write(_LENGTH.pack(len(text)) + text)
        while block := written.read(1 << 22):
            file.write(block)
    body.unlink()
    return True


def apply_changes(base: Path, changes: Sequence[Path], target: Path) -> None:
    """Write `base` with all changes, the oldest first, to `target`, one part after the other.

    Raises `OSError`, and `ChangesInvalid` for changes that do not belong to such a file.
    """
    header = _header(base)
    size = base.stat().st_size
    parts = _parts(base, header)
    read = [_read_changes(path, size, parts) for path in changes]
    with base.open("rb") as source, target.open("wb") as file:
        file.write(_exactly(source, _LENGTH.size + len(header), base))
        for part in parts:
            content = np.frombuffer(_exactly(source, part.end - part.begin, base), np.uint8)
            elements = content.view(f"<u{part.item}")
            for path, stored in zip(changes, read, strict=True):
                _put(elements, *next(stored), path)
            file.write(content.data)


def _changed(old: Elements, now: Elements, parts: Sequence[_Part]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each part's gaps and values; a few parts are computed at once."""
    waiting = iter(parts)
    with ThreadPoolExecutor(_AT_ONCE, "changes") as threads:
        while some := list(islice(waiting, _AT_ONCE)):  # a few: all together may take much memory
            yield from threads.map(
                lambda part: _changes(part.elements(old), part.elements(now)), some
            )


def _changes(old: Elements, now: Elements) -> tuple[bytes, bytes]:
    places = np.flatnonzero(old != now)
    gaps = np.diff(places, prepend=-1)
    far, rest = np.divmod(gaps, _FAR)
    text = np.full(int(far.sum()) + gaps.size, _FAR, np.uint8)
    text[np.cumsum(far + 1) - 1] = rest
    return text.tobytes(), now[places].tobytes()


def _put(elements: Elements, gaps: bytes, values: bytes, file: Path) -> None:
    """Set a part's changed elements."""
    steps = np.frombuffer(gaps, np.uint8)
    places = np.cumsum(steps, dtype=np.int64)[steps != _FAR] - 1
    new = np.frombuffer(values, elements.dtype)
    if len(places) != len(new) or (
        len(places) and not 0 <= places[0] <= places[-1] < len(elements)
    ):
        raise ChangesInvalid(str(file), "its positions are not those of the file")
    elements[places] = new


def _read_changes(path: Path, size: int, parts: Sequence[_Part]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each part's gaps and values, for a file of `size` bytes."""
    with path.open("rb") as file:
        try:
            header = json.loads(_prefixed(file, path))
            whole = header["size"]
            lengths = [(int(a), int(b)) for a, b in header["parts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ChangesInvalid(str(path), f"has no header of changes: {error}") from error
        if whole != size or len(lengths) != len(parts):
            raise ChangesInvalid(str(path), f"is of a file of {whole} bytes, not {size}")
        for part, (gaps, values) in zip(parts, lengths, strict=True):
            if values % part.item:
                raise ChangesInvalid(str(path), "has half a value")
            yield bytes(_exactly(file, gaps, path)), bytes(_exactly(file, values, path))


def _parts(path: Path, header: bytes) -> list[_Part]:
    """Return a safetensors file's parts, in order; together they hold all its tensors."""
    begin = _LENGTH.size + len(header)
    runs: list[_Part] = []
    for start, end, item in sorted(_ranges(path, header)):
        if start + begin != (runs[-1].end if runs else begin):
            raise ChangesInvalid(str(path), "its tensors overlap or leave a gap")
        if runs and runs[-1].item == item:
            runs[-1] = _Part(runs[-1].begin, begin + end, item)
        else:
            runs.append(_Part(begin + start, begin + end, item))
    if (runs[-1].end if runs else begin) != path.stat().st_size:
        raise ChangesInvalid(str(path), "is longer or shorter than its header says")
    return [
        _Part(first, min(run.end, first + _PART_ELEMENTS * run.item), run.item)
        for run in runs
        for first in range(run.begin, run.end, _PART_ELEMENTS * run.item)
    ]


def _ranges(path: Path, header: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield begin and end of each tensor's bytes, and an element's size."""
    try:
        facts = json.loads(header)
        for name, tensor in facts.items():
            if name != "__metadata__":
                start, end = tensor["data_offsets"]
                item = _SIZES.get(tensor["dtype"], 1)
                yield start, end, item if (end - start) % item == 0 else 1
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangesInvalid(str(path), f"has no header of safetensors: {error}") from error


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return bytes(_prefixed(file, path))


def _prefixed(file: BinaryIO, path: Path) -> bytearray:
    """Read a length, then as many bytes."""
    (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size, path))
    if length > path.stat().st_size:
        raise ChangesInvalid(str(path), "its header is longer than the file")
    return _exactly(file, length, path)


def _exactly(file: BinaryIO, size: int, path: Path) -> bytearray:
    content = bytearray(size)
    if file.readinto(content) != size:  # type: ignore[attr-defined]
        raise ChangesInvalid(str(path), "is cut short")
    return content
