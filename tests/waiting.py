"""Waiting in tests: for a condition, never for a time."""

import time
from collections.abc import Callable


def until(
    condition: Callable[[], bool], what: str = "a condition", deadline_s: float = 60.0
) -> None:
    """Wait until the condition holds; fail the test if it does not in time."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s:g} s for {what}"
        time.sleep(0.002)
