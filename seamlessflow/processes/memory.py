"""Memory of a process, as Linux counts it."""

from pathlib import Path

_MB = 1024.0


def peak_rss_mb(pid: int | str) -> float:
    """Return the largest resident set so far, in MiB, or 0 if it cannot be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / _MB
    return 0.0
