"""When a client that streams has heard nothing for too long."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What this needs of an event loop."""

    def time(self) -> float:
        """Now, in seconds."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls back once."""
        ...


class Silence:
    """Calls `too_long` each time that `seconds` passed in which nothing was `heard`.

    Something heard only notes the time, as it may come with every token; the timer finds it.
    """

    def __init__(self, clock: Clock, seconds: float, too_long: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._too_long = too_long
        self._since = clock.time()
        self._timer = clock.call_later(seconds, self._look)

    def heard(self) -> None:
        """The silence is over; another begins."""
        self._since = self._clock.time()

    def end(self) -> None:
        """Nobody listens any more."""
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._since + self._seconds - self._clock.time()
        if left_s <= 0:
            self.heard()
            self._too_long()
            left_s = self._seconds
        self._timer = self._clock.call_later(left_s, self._look)
