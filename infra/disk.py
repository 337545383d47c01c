"""Files and directories on disk: complete under their names, or not there at all.

A file that others read is first written as a draft, within `room_for`. The error for a full disk
names the file, its bytes and the room left. A file size limit or a quota counts as a full disk.
Code that starts processes asks `free_bytes` first.

If a process is killed, a later one removes its scratch directory. The owner holds a lock on a file
in it, which the kernel frees when the process ends.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS = tuple(os.strerror(number) for number in _FULL)

_OWNER = "owner.lock"
_PREFIX = "seamlessflow-"


class DiskFull(SeamlessFlowError):
    """A file that could not be written for lack of space; no part stays under its name."""

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
def whole_file(target: Path, shared: bool = False) -> Iterator[BinaryIO]:
    """Yield a draft to write. When the body ends, it becomes `target` and replaces an old one.

    The draft stands beside `target` as `.<name>`. The next attempt overwrites what a killed process
    left. The draft is deleted after an error. `shared`: other processes may write the same file at
    the same time, so the draft's name is random. Raises `DiskFull`.
    """
    random = f".{uuid.uuid4().hex[:8]}" if shared else ""
    draft = target.with_name(f".{target.name}{random}")
    try:
        with room_for(target, draft):
            with draft.open("wb") as file:
                yield file
            name_whole(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def name_whole(draft: Path, target: Path) -> None:
    """Give a closed file its name, replacing an old one; wait until both are on the disk."""
    flush_to_disk(draft)
    draft.replace(target)
    flush_to_disk(target.parent)


@contextmanager
def whole_directory(target: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a draft to fill; when the body ends, it becomes `target` and replaces an old one.

    The draft stands beside `target` as `.<name>.<random>` and is deleted after an error. With
    `sync` False it is not forced to disk. Raises `DiskFull`.
    """
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with room_for(target, draft):
            draft.mkdir(parents=True)
            yield draft
            if sync:
                for path in (*draft.iterdir(), draft):
                    flush_to_disk(path)
            remove_directory(target)  # a directory cannot be renamed over one that is not empty
            draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if sync:
        flush_to_disk(target.parent)


def remove_directory(path: Path) -> None:
    """Delete a directory so that it disappears under its name at once."""
    if path.exists():
        grave = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        path.rename(grave)
        shutil.rmtree(grave)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def room_for(target: Path, draft: Path) -> Iterator[None]:
    """Raise `DiskFull` instead if the body's error says that the disk is full.

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


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to a file, or a copy of it where the file system has none.

    A symbolic link is followed to its target. Raises `OSError`.
    """
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def open_to_readers(file: Path) -> None:
    """Give a file its directory's permissions to read and write.

    safetensors makes files that only their owner may read.
    """
    file.chmod(file.parent.stat().st_mode & 0o666)


def make_writable(directory: Path, option: str) -> None:
    """Make the directory if it is missing.

    Raises `SettingsRejected`, which names the option, if no file can be made there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=directory).close()
    except OSError as error:
        reason = f"{directory} is no directory for files: {error.strerror}"
        raise SettingsRejected(option, reason) from error


def check_file(option: str, path: Path) -> None:
    """Raise `SettingsRejected` if no file can be written at this path."""
    if path.is_dir():
        raise SettingsRejected(option, f"{path} is a directory")
    _check_parent(option, path.parent)


def check_directory(option: str, path: Path) -> None:
    """Raise `SettingsRejected` if no directory can be made at this path, with its parents."""
    _check_parent(option, next(parent for parent in path.absolute().parents if parent.exists()))


class ScratchDirectory:
    """A new directory below `parent`, by default the directory for temporary files.

    It first removes this user's directories there whose owner has ended. Others are left.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_ownerless(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        begun = self.path / f"{_OWNER}.new"
        self._lock = begun.open("wb")
        # Without file locks it gets no owner's file, and later processes leave it.
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begun.rename(self.path / _OWNER)  # others see it only once it is locked

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path)
        self._lock.close()


def _check_parent(option: str, parent: Path) -> None:
    if not parent.is_dir():
        raise SettingsRejected(option, f"there is no directory {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SettingsRejected(option, f"{parent} cannot be written to")


def _reason(error: Exception) -> str:
    """Return how the error says that a disk is full, or "" if it does not.

    Libraries not written in Python raise their own errors, with the system's words.
    """
    if isinstance(error, OSError):
        return error.strerror or "" if error.errno in _FULL else ""
    return next((words for words in _WORDS if words in str(error)), "")


def _size(draft: Path) -> int:
    files = [path for path in draft.rglob("*") if path.is_file()] if draft.is_dir() else [draft]
    return sum(file.stat().st_size for file in files if file.exists())


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
