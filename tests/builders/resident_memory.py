"""Resident memory of a process, as Linux tells it."""

from pathlib import Path
from typing import Literal

NOW: Literal["VmRSS"] = "VmRSS"
MOST: Literal["VmHWM"] = "VmHWM"


def resident(figure: Literal["VmRSS", "VmHWM"], process: int | str = "self") -> int:
    """Return the resident memory of now, or the most so far, in bytes.

    `getrusage` would begin with the figure of the parent process.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{figure}:"))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Let the most resident memory of this process be that of now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
