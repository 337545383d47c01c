"""Time of day as records have it, and time limits for waits.

A wait also ends when the process is asked to end. Library calls that do not keep to their own
deadline get one here.
"""

import threading
import time
from collections.abc import Callable

NEVER_MS = 2**62
"""A time that never comes: the deadline for a wait that something else ends."""


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


Stopping = Callable[[], bool]
"""True once the process was asked to end, so that a wait ends too. Called from any thread."""


def never() -> bool:
    """Return False, so that only its limit ends the wait."""
    return False


class CallsInTurn:
    """Calls that one thread makes with a deadline, and that never overtake one another."""

    def __init__(self) -> None:
        self._last: threading.Thread | None = None

    @property
    def unfinished(self) -> bool:
        """True while a call that missed its deadline still runs."""
        return self._last is not None and self._last.is_alive()

    def within(self, timeout_s: float | None, call: Callable[[], object]) -> None:
        """Make a call: return once it has returned, or raise what it raised.

        Raises `TimeoutError` after `timeout_s`. The call then goes on in a separate thread. Until
        it ends, another call raises `TimeoutError` at once. With None it is made in this thread.
        """
        if self.unfinished:
            raise TimeoutError("the call before has no answer yet")
        if timeout_s is None:
            call()
            return
        errors: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)

        self._last = threading.Thread(target=run, name="call with a deadline", daemon=True)
        self._last.start()
        self._last.join(timeout_s)
        if self.unfinished:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if errors:
            raise errors[0]


def within(timeout_s: float, call: Callable[[], object]) -> None:
    """Make a call: return once it has returned, or raise what it raised.

    Raises `TimeoutError` after `timeout_s`. The call then goes on in a separate thread, for which
    nothing waits.
    """
    CallsInTurn().within(timeout_s, call)
