"""A simulation's agenda: coming events, and the time. Times in seconds."""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any


class Agenda:
    """Coming events; at the same time, the event that was entered first happens first."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._coming: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    @property
    def now_ms(self) -> int:
        """The time in whole milliseconds, as records have it."""
        return round(1000 * self.now_s)

    @property
    def next_s(self) -> float:
        """The next event's time; infinite if there is none."""
        return self._coming[0][0] if self._coming else inf

    def after(self, delay_s: float, happen: Callable[..., None], *arguments: Any) -> None:
        """Call `happen(*arguments)` after this many seconds."""
        heapq.heappush(self._coming, (self.now_s + delay_s, next(self._order), happen, arguments))

    def run_until(self, end_s: float) -> None:
        """Move to `end_s` and let all events happen that are due until then."""
        while self._coming and self._coming[0][0] <= end_s:
            self.now_s, _, happen, arguments = heapq.heappop(self._coming)
            happen(*arguments)
        self.now_s = end_s
