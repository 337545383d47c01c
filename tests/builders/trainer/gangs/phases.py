"""Processes that are stopped within a phase of their work, which /proc shows."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.waiting import until

Phase = Callable[[int], bool]
"""Returns whether the process with this id is in the phase now."""


def reads(file: Path) -> Phase:
    """Return the phase in which a process reads a safetensors file, which it maps for that."""

    def reading(process: int) -> bool:
        return str(file) in Path(f"/proc/{process}/maps").read_text()

    return reading


def writes_draft(root: Path) -> Phase:
    """Return the phase in which a process writes tensors into a draft in `root`."""

    def writing(process: int) -> bool:
        opened = (os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir())
        return any(
            file.startswith(f"{root}/.") and file.endswith(".safetensors") for file in opened
        )

    return writing


def stopped_in(phase: Phase, find: Callable[[], int | None], limit_s: float) -> int:
    """Stop the process that `find` returns, if there is one, in a phase; return its id.

    It goes on no more, so it is in that phase for as long as it is not killed or continued.
    """
    held: list[int] = []

    def hold() -> bool:
        with suppress(OSError):  # one that ends, or a file that it closes meanwhile
            if (process := find()) is not None and phase(process):
                os.kill(process, signal.SIGSTOP)
                until(lambda: _state(process) == "T", "the stop of a process")
                if phase(process):
                    held.append(process)
                else:
                    os.kill(process, signal.SIGCONT)
        return bool(held)

    until(hold, "a phase", limit_s)
    return held[0]


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[0]
