"""Hashes of a weights directory's files, and marks for files that this host has compared.

A manifest names its hash function. BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs) is a tree
hash as strong as SHA-256: all cores hash parts of a file. Files are read, not mapped: if one is cut
short meanwhile, it has another hash and does not kill the process.

A user's first process that checks a version leaves a mark, which counts until the host boots. Then
the user's other processes read nothing again. A mark names the manifest's hash and each file's
stamp. So a file that was written, replaced or cut since is hashed again. A mark does not show a
change behind the file system's back, such as a bit that flips in memory, or a write through a
mapped file on tmpfs. Marks are in a directory that only this user may write to, and not beside the
weights. There, any host that writes weights could vouch for altered ones.
"""

import fcntl
import hashlib
import json
import logging
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from blake3 import blake3

HashName = Literal["sha256", "blake3"]
Stamp = tuple[int, ...]
"""Device, inode and size; the times at which content and facts last changed, in nanoseconds."""

_PART_BYTES = 1024 * 1024  # fits a core's cache, where a second hash finds it again
_AT_ONCE = 4
_SETTLED_NS = 100_000_000
"""Age of a change after which a later one has another time: file systems count coarsely."""

_PREFIX = "seamlessflow-verified-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WAIT_S = 600.0
_AGAIN_S = 0.02
_log = logging.getLogger(__name__)


class ByteTaker(Protocol):
    """Receiver for a file's bytes, in order."""

    def update(self, part: memoryview, /) -> object:
        """Take the next bytes. After the call the same memory has other bytes."""


class _Hash(ByteTaker, Protocol):
    def hexdigest(self) -> str: ...


_MADE: Mapping[HashName, Callable[[], _Hash]] = {
    "sha256": hashlib.sha256,
    "blake3": lambda: blake3(max_threads=blake3.AUTO),
}


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file's content hash."""

    hexdigest: str
    stamp: Stamp | None
    """The file's stamp with this content; None if a change might not show in it."""


def hash_files(
    paths: Sequence[Path], name: HashName, beside: Mapping[Path, ByteTaker] = MappingProxyType({})
) -> list[HashedFile]:
    """Return the files' hashes; several files are read at once.

    `beside` has, by path, what else takes a file's bytes, so that they are read once. Raises
    `OSError`, and what `beside` raises.
    """
    with ThreadPoolExecutor(_AT_ONCE, "hash") as threads:
        return list(threads.map(lambda path: _hash_file(path, name, beside.get(path)), paths))


def file_hash(path: Path, name: HashName, beside: ByteTaker | None = None) -> str:
    """Return a file's hex hash. Raises as `hash_files`."""
    made = _MADE[name]()
    part = memoryview(bytearray(_PART_BYTES))
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


class HostMarks:
    """The marks for one weights directory."""

    def __init__(self, directory: Path) -> None:
        resolved = directory.resolve()
        self._directory = str(resolved)
        place = _place()
        # A folder for each directory of versions: other runs' marks need not be looked at.
        self._file = place and place / _name(resolved.parent) / f"{_name(resolved)}.json"

    def read(self, manifest_sha256: str) -> Mapping[str, Stamp]:
        """Return the stamps, by name, of files that were equal to what this manifest says."""
        if self._file is None:
            return {}
        try:
            mark = json.loads(self._file.read_bytes())
            if (mark["boot"], mark["manifest"]) != (_boot(), manifest_sha256):
                return {}
            return {name: tuple(stamp) for name, stamp in mark["stamps"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # no mark, or one that says nothing: the files are hashed

    def write(self, manifest_sha256: str, stamps: Mapping[str, Stamp | None]) -> None:
        """Replace the mark. Files whose stamp is None have none."""
        if self._file is None:
            return
        stamped = {name: stamp for name, stamp in stamps.items() if stamp is not None}
        facts = {"directory": self._directory, "boot": _boot(), "manifest": manifest_sha256}
        draft = self._file.with_suffix(f".{uuid.uuid4().hex[:8]}")
        try:
            draft.parent.mkdir(exist_ok=True)
            draft.write_text(json.dumps(facts | {"stamps": stamped}))
            draft.replace(self._file)
            _remove_others(self._file.parent)
        except OSError as error:
            _log.info("no mark of %s: %s", self._directory, error)
            draft.unlink(missing_ok=True)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let only one process on this host at a time check or make the directory.

        After ten minutes a waiting process goes on: the other one may stand still.
        """
        if self._file is None:
            yield
            return
        self._file.parent.mkdir(exist_ok=True)
        with self._file.with_suffix(".lock").open("wb") as lock:
            deadline = time.monotonic() + _WAIT_S
            while not _locked(lock.fileno()) and time.monotonic() < deadline:
                time.sleep(_AGAIN_S)
            yield


def _hash_file(path: Path, name: HashName, beside: ByteTaker | None) -> HashedFile:
    before = stamp(path)
    digest = file_hash(path, name, beside)
    settled = os.stat(path).st_ctime_ns < time.time_ns() - _SETTLED_NS
    return HashedFile(digest, before if settled and before == stamp(path) else None)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _place() -> Path | None:
    """Return the marks' directory, made if it is missing; None if others may write there."""
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"
    try:
        _boot()  # without it, marks from before a loss of power would count
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        facts = path.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    return path if ours and not facts.st_mode & 0o077 else None


def _name(directory: Path) -> str:
    return hashlib.sha256(str(directory).encode()).hexdigest()


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


def _remove_others(place: Path) -> None:
    """Remove the marks in one directory for versions that are gone."""
    for mark in place.glob("*.json"):
        try:
            gone = not Path(json.loads(mark.read_bytes())["directory"]).exists()
        except (OSError, ValueError, KeyError, TypeError):
            gone = False
        if gone:
            mark.unlink(missing_ok=True)
            mark.with_suffix(".lock").unlink(missing_ok=True)
