"""The timer of a streamed call that asks for a keep-alive after a time without an event."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class TimerLoop(Protocol):
    """The part of an event loop that a timer needs."""

    def time(self) -> float:
        """Return the loop's time, in seconds."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back once, after `delay` seconds."""
        ...


class KeepAliveTimer:
    """A timer that calls `expired` after each `seconds` without a `restart`, until `cancel`."""

    def __init__(self, loop: TimerLoop, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._expired = expired
        self._since = loop.time()
        self._timer = loop.call_later(seconds, self._check)

    def restart(self) -> None:
        """Begin to wait for `seconds` again."""
        # Called for each event, so it only notes the time; `_check` reads it when the timer is due.
        self._since = self._loop.time()

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _check(self) -> None:
        left_s = self._since + self._seconds - self._loop.time()
        if left_s <= 0:
            self.restart()
            self._expired()
            left_s = self._seconds
        self._timer = self._loop.call_later(left_s, self._check)
