"""Lock of the directory of a run: two commands would take each other's sessions and workers over.

The kernel frees it with the command that holds it, however that ends.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from seamlessflow.infra.errors import SeamlessFlowError

RUN = "run"


class RunUnderWay(SeamlessFlowError):
    """A directory in which another command runs."""

    lasting = True

    def __init__(self, out: Path, owner: str) -> None:
        self.out = out
        self.owner = owner
        super().__init__(
            f"{out}: another command runs there ({owner}), which this one would take over: end "
            "that first, or set out to another directory"
        )


@contextmanager
def only_run(out: Path, name: str = RUN) -> Iterator[None]:
    """Hold the lock of a directory, which is made if it is missing. Raises `RunUnderWay`.

    Where a file system has no locks, nothing is held.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _file(out, name).open("a+b") as file:
        _lock(out, file)
        file.truncate(0)
        file.write(f"process {os.getpid()} of {socket.gethostname()}".encode())
        file.flush()
        yield


def refuse_running(out: Path) -> None:
    """Raise `RunUnderWay` if a command runs in the directory."""
    if _file(out, RUN).is_file():
        with _file(out, RUN).open("r+b") as file:
            _lock(out, file)


def _file(out: Path, name: str) -> Path:
    return out / f"{name}.lock"


def _lock(out: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read(200).decode(errors="replace") or "it starts"
        raise RunUnderWay(out, owner) from None
    except OSError:  # no locks there
        return
