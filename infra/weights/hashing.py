"""Hashes of the files of a weights directory, by the functions that manifests may name.

BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs) is a tree hash as strong as SHA-256: the parts
of a file are hashed by all cores. Files are read, not mapped: one that is cut short meanwhile has
another hash and does not kill the process.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from blake3 import blake3

HashName = Literal["sha256", "blake3"]
Stamp = tuple[int, ...]
"""Device, inode and size; the times at which content and facts last changed, in nanoseconds."""

_PART_BYTES = 1024 * 1024  # fits the cache of a core, where a second hash finds it again
_AT_ONCE = 4
_SETTLED_NS = 100_000_000
"""Age of a change from which a later one has another time: file systems count coarsely."""


class ByteTaker(Protocol):
    """A taker of a file's bytes, in order."""

    def update(self, part: memoryview, /) -> object:
        """Take the next bytes, which are others after the call."""


class _Hash(ByteTaker, Protocol):
    def hexdigest(self) -> str: ...


_MADE: Mapping[HashName, Callable[[], _Hash]] = {
    "sha256": hashlib.sha256,
    "blake3": lambda: blake3(max_threads=blake3.AUTO),
}


@dataclass(frozen=True, slots=True)
class HashedFile:
    """The hash of a file's content."""

    hexdigest: str
    stamp: Stamp | None
    """Stamp of the file with this content; None if a change may not show in it."""


def hash_files(
    paths: Sequence[Path], name: HashName, beside: Mapping[Path, ByteTaker] = MappingProxyType({})
) -> list[HashedFile]:
    """Return the hashes of files, several read at once.

    `beside`: what also takes the bytes of a file, so that they are read once. Raises `OSError` and
    what that raises.
    """
    with ThreadPoolExecutor(_AT_ONCE, "hash") as threads:
        return list(threads.map(lambda path: _hash_file(path, name, beside.get(path)), paths))


def file_hash(path: Path, name: HashName, beside: ByteTaker | None = None) -> str:
    """Return the hex hash of a file. Raises as `hash_files`."""
    made, part = _MADE[name](), memoryview(bytearray(_PART_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(part):
            made.update(part[:size])
            if beside is not None:
                beside.update(part[:size])
    return made.hexdigest()


def stamp(path: Path) -> Stamp:
    """Return the file's stamp. Raises `OSError`."""
    facts = path.stat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _hash_file(path: Path, name: HashName, beside: ByteTaker | None) -> HashedFile:
    before = stamp(path)
    digest = file_hash(path, name, beside)
    settled = os.stat(path).st_ctime_ns < time.time_ns() - _SETTLED_NS
    return HashedFile(digest, before if settled and before == stamp(path) else None)
