"""Waiting in tests: for a condition, never for a time; and one that many wait for."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 120.0
"""Seconds until a test gives up an answer: a busy machine may stand still for a minute."""


def until(
    condition: Callable[[], bool], what: str = "a condition", deadline_s: float = PATIENCE_S
) -> None:
    """Wait until the condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s:g} s for {what}"
        time.sleep(0.002)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True
