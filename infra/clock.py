"""Time of day as records have it."""

import time

NEVER_MS = 2**62
"""A time that never comes, for deadlines of what waits for something else."""


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
