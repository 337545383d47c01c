"""Programs that an environment's process started, and theirs, once it is gone.

Most are in its process group. Others made a group of their own. They still have the environment
variables that it gave them, and among these a mark.
"""

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_MARK = "ENVIRONMENT_PROCESS_MARK"


def new_mark() -> Mapping[str, str]:
    """Return a variable for a process and all that it starts."""
    return {_MARK: uuid.uuid4().hex}


def end_leftovers(group: int, mark: Mapping[str, str]) -> None:
    """Kill the process group and, on Linux, all other processes of the user with this mark."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for process in marked(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def marked(mark: Mapping[str, str]) -> Iterator[int]:
    """Yield the processes that have the mark, as far as the user may look at them."""
    if not sys.platform.startswith("linux"):
        return
    entry = f"{_MARK}={mark[_MARK]}".encode()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if entry in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)
