"""Marks for files that a process of this user has hashed on this host since it booted.

The first process that checks a version leaves a mark, so that the others of its host read nothing
again. A mark names the manifest's hash and each file's stamp. A file that was written, replaced or
cut since is hashed again. A mark does not show a change behind the file system's back. A bit may
flip in memory, or a process may write through a mapping of a file on tmpfs. Marks are in a
directory that this user alone may write to. They are not beside the weights, where any host that
writes weights could vouch for altered ones.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from seamlessflow.infra.weights.hashing import Stamp

_PREFIX = "seamlessflow-verified-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WAIT_S, _AGAIN_S = 600.0, 0.02
_log = logging.getLogger(__name__)


class HostMarks:
    """The marks of one directory of weights."""

    def __init__(self, directory: Path) -> None:
        resolved = directory.resolve()
        self._directory = str(resolved)
        place = _place()
        # By the directory of all versions: other runs' marks, however many, are not looked at.
        self._file = place and place / _name(resolved.parent) / f"{_name(resolved)}.json"

    def read(self, manifest_sha256: str) -> Mapping[str, Stamp]:
        """Return the stamps of files that were equal to what this manifest says, by name."""
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
        """Let one process of this host at a time check the directory, or make it.

        One that has waited for ten minutes goes on: the other one may stand still.
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


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _place() -> Path | None:
    """Return the directory of marks, made if it is missing; None if others may write there."""
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
    """Remove the marks of versions that are gone, of one directory."""
    for mark in place.glob("*.json"):
        try:
            gone = not Path(json.loads(mark.read_bytes())["directory"]).exists()
        except (OSError, ValueError, KeyError, TypeError):
            gone = False
        if gone:
            mark.unlink(missing_ok=True)
            mark.with_suffix(".lock").unlink(missing_ok=True)
