"""Time of day as records have it, and limits to waits.

A wait ends when the process is asked to end. Calls to libraries that do not keep to their deadline
get one.
"""

import threading
import time
from collections.abc import Callable

NEVER_MS = 2**62
"""A time that never comes, for deadlines of what waits for something else."""


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


Stopping = Callable[[], bool]
"""True once the process was asked to end, so that a wait ends too. Called from any thread."""


def never() -> bool:
    """Return False: nothing but its limit ends the wait."""
    return False


class CallsInTurn:
    """Calls of one thread that get a deadline and never overtake one another."""

    def __init__(self) -> None:
        self._last: threading.Thread | None = None

    @property
    def unfinished(self) -> bool:
        """Return whether a call that had no answer in time goes on."""
        return self._last is not None and self._last.is_alive()

    def within(self, timeout_s: float | None, call: Callable[[], object]) -> None:
        """Return once `call` returned, or raise what it raised.

        Raises `TimeoutError` after `timeout_s`. The call then goes on in a separate thread. Until
        it ends, another one raises `TimeoutError` at once. None: it is made in this thread.
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
    """Return once `call` returned, or raise what it raised.

    Raises `TimeoutError` after `timeout_s`; the call then goes on in a thread of its own, for which
    nothing waits.
    """
    CallsInTurn().within(timeout_s, call)
