"""Scratch directory of a process, which a later process removes if its owner was killed.

The owner holds a lock on a file in it, which the kernel frees with the process. Called by
`seamlessflow/processes/watchdog.py`.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_OWNER = "owner.lock"
_PREFIX = "seamlessflow-"


class ScratchDirectory:
    """A new directory below `parent`, by default that for temporary files.

    Directories of this user whose owner has ended are removed there first. Others are left.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_ownerless(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        begun = self.path / f"{_OWNER}.new"
        self._lock = begun.open("wb")
        # Where there are no locks it has no owner's file, and is left.
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begun.rename(self.path / _OWNER)  # only locked is it seen by others

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path)
        self._lock.close()


def _remove_ownerless(parent: Path) -> None:
    for file in parent.glob(f"{_PREFIX}*/{_OWNER}"):
        with suppress(OSError):  # it has an owner, or another process removed it
            if file.parent.is_symlink() or file.stat().st_uid != os.getuid():
                continue
            with file.open("rb") as lock:
                _remove_if_free(file.parent, lock)


def _remove_if_free(directory: Path, lock: IO[bytes]) -> None:
    """Remove the directory. Raises `OSError` while its owner holds the lock."""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shutil.rmtree(directory)
