"""Programs and files that an environment's process leaves, once it is gone.

Most programs are in its process group. Others made a group of their own. They still have the
environment variables that it gave them, and among these a mark: the name of its folder for
temporary files. The agents' process holds a lock on that folder. Without the lock it was killed,
and the next one ends what is left.
"""

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MARK = "ENVIRONMENT_PROCESS_MARK"
_PREFIX = "environment-"
_DRAFT = f"new-{_PREFIX}"
"""Begins the name of a folder that is not locked yet."""
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Programs that an environment's process has started, and files in its folder."""

    programs: tuple[str, ...]
    files: tuple[str, ...]


class EnvironmentFolder:
    """A folder for temporary files, locked for as long as this process lives."""

    def __init__(self) -> None:
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT))
        lock = os.open(draft, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._lock: int | None = lock
        self.path = draft.rename(draft.with_name(draft.name.replace(_DRAFT, _PREFIX, 1)))

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the variables for a process and all that it starts."""
        return {"TMPDIR": str(self.path), _MARK: self.path.name}

    def end_leftovers(self, group: int) -> None:
        """Kill the process group and, on Linux, all other processes of the user with its mark."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        _end_marked(self.path.name)

    def left_behind(self, process: int) -> LeftBehind:
        """Return what there is besides the process, as far as the user may look at it."""
        programs = (_command(other) for other in _marked(self.path.name) if other != process)
        files = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else ()
        return LeftBehind(tuple(sorted(filter(None, programs))), tuple(files))

    def remove(self) -> None:
        """Remove the folder of a process that ended; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def end_abandoned() -> None:
    """End the programs and remove the folders of agents' processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # another user's, or it is gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_marked(path.name)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(lock)


def _end_marked(mark: str) -> None:
    for process in _marked(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _marked(mark: str) -> Iterator[int]:
    """Yield the processes that have the mark, as far as the user may look at them."""
    if not sys.platform.startswith("linux"):
        return
    entry = f"{_MARK}={mark}".encode()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if entry in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)


def _command(process: int) -> str:
    """Return the command line of a process; empty if it is gone or is about to be."""
    with suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").strip()
        return words.decode(errors="replace")[:_SHOWN_CHARACTERS]
    return ""
