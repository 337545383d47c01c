"""Ends of waits: by a process that was asked to end, and a deadline for calls of libraries that do
not keep to theirs.
"""

import threading
from collections.abc import Callable

Stopping = Callable[[], bool]
"""True once the process was asked to end, so that a wait ends too. Called from any thread."""


def never() -> bool:
    """Return False: nothing but its limit ends the wait."""
    return False


def within(timeout_s: float, call: Callable[[], object]) -> None:
    """Return once `call` returned, or raise what it raised.

    Raises `TimeoutError` after `timeout_s`; the call then goes on in a thread of its own, for which
    nothing waits.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="call with a deadline", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if errors:
        raise errors[0]
