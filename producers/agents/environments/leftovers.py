"""Programs and files that an environment's process leaves when it is gone.

Most programs are in its process group; others made their own group. All of them still have its
environment variables, among them a mark: the name of its folder for temporary files. The agents'
process holds a lock on that folder. If the folder is not locked, that process was killed, and the
next one ends what is left.
"""

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MARK = "ENVIRONMENT_PROCESS_MARK"
_PREFIX = "environment-"
_DRAFT = f"new-{_PREFIX}"
"""Start of the name of a folder that is not locked yet."""
_SHOWN_CHARACTERS = 80
_PROCESSES = Path("/proc")
_STARTING_S = 5.0
_LOOK_S = 0.005
_OF_THE_KERNEL = 0x00200000
"""Flag PF_KTHREAD of the kernel's threads, which have no variables."""


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
        """Kill the process group and, on Linux, the user's other processes that have its mark."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        end_marked(self.path.name)

    def left_behind(self, process: int) -> LeftBehind:
        """Return its other programs, and its files, as far as the user may look at them."""
        programs = (_command(other) for other in _marked(self.path.name) if other != process)
        files = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else ()
        return LeftBehind(tuple(sorted(filter(None, programs))), tuple(files))

    def remove(self) -> None:
        """Remove the folder after the process has ended; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def end_abandoned() -> None:
    """End the programs and remove the folders that killed agents' processes left."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # another user's, or it is gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_marked(path.name)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(lock)


def end_marked(mark: str, processes: Path = _PROCESSES) -> None:
    """Kill the processes with the mark, as far as the user may look at them.

    While a program starts, the kernel first shows neither its command line nor its variables, then
    only the command line. So a process without variables is looked at again, for a few seconds at
    most.
    """
    if not sys.platform.startswith("linux"):
        return
    unclear = list(processes.glob("[0-9]*"))
    with_words: set[Path] = set()
    deadline_s = time.monotonic() + _STARTING_S
    while True:
        starting = [process for process in unclear if not _end_if_marked(process, mark)]
        unclear = [process for process in starting if process not in with_words]
        if not unclear or time.monotonic() > deadline_s:
            return
        with_words.update(process for process in unclear if _read(process / "cmdline"))
        time.sleep(_LOOK_S)


def _end_if_marked(process: Path, mark: str) -> bool:
    """Kill a process with the mark. Return False for one that may be about to get variables."""
    variables = _read(process / "environ")
    if _has(mark, variables):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(process.name), signal.SIGKILL)
    return bool(variables) or not _is_program(process)


def _marked(mark: str) -> Iterator[int]:
    """Yield the processes that have the mark, as far as the user may look at them."""
    if sys.platform.startswith("linux"):
        for process in _PROCESSES.glob("[0-9]*"):
            if _has(mark, _read(process / "environ")):
                yield int(process.name)


def _has(mark: str, variables: bytes) -> bool:
    return f"{_MARK}={mark}".encode() in variables.split(b"\0")


def _is_program(process: Path) -> bool:
    """Return whether a process has not ended, and is no kernel thread."""
    facts = _read(process / "stat").rpartition(b")")[2].split()
    return bool(facts) and facts[0] not in b"ZX" and not int(facts[6]) & _OF_THE_KERNEL


def _read(file: Path) -> bytes:
    """Return the content of a process's file; empty if the process is gone or another user's."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def _command(process: int) -> str:
    """Return a process's command line; empty if the process is gone or about to go."""
    words = _read(_PROCESSES / str(process) / "cmdline").replace(b"\0", b" ").strip()
    return words.decode(errors="replace")[:_SHOWN_CHARACTERS]
