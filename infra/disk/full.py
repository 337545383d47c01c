"""Full disks: an error that names the file, its bytes and the room that is left.

Writers of files that others read put their drafts into `room_for`; what starts processes asks
`free_bytes` first. A limit to the size of files, or a quota, counts as a full disk.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS = tuple(os.strerror(number) for number in _FULL)


class DiskFull(SeamlessFlowError):
    """A file that could not be written for want of space; nothing of it stays under its name."""

    lasting = False

    def __init__(self, path: str, written: int, free: int, reason: str) -> None:
        self.path = path
        self.written = written
        self.free = free
        self.reason = reason
        super().__init__(
            f"no space for {path}: {written} bytes of it were written, {free} bytes are free there "
            f"({reason}); make room, then start again what has ended"
        )


@contextmanager
def room_for(target: Path, draft: Path) -> Iterator[None]:
    """Raise `DiskFull` instead of an error of the body that says that the disk is full.

    `draft`: the file or directory that the body fills, to be named `target`.
    """
    try:
        yield
    except Exception as error:
        reason = _reason(error)
        if not reason:
            raise
        raise DiskFull(str(target), _size(draft), free_bytes(target.parent), reason) from error


def free_bytes(directory: Path) -> int:
    """Return how many bytes this process's user may still write on the directory's disk."""
    return shutil.disk_usage(directory).free


def is_full(error: Exception) -> bool:
    """Return whether an error says that a disk is full."""
    return bool(_reason(error))


def _reason(error: Exception) -> str:
    """Return why the error is one of a full disk, or "" if it is another one.

    Libraries that are not written in Python raise errors of their own, with the system's words.
    """
    if isinstance(error, OSError):
        return error.strerror or "" if error.errno in _FULL else ""
    return next((words for words in _WORDS if words in str(error)), "")


def _size(draft: Path) -> int:
    files = [path for path in draft.rglob("*") if path.is_file()] if draft.is_dir() else [draft]
    return sum(file.stat().st_size for file in files if file.exists())
