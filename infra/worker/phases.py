"""Times of the phases of a move, as `RoleAcquired` and `RoleReleased` report them."""

import time
from collections.abc import Callable


class PhaseTimes:
    """A watch that runs from its making: each phase ends where the next one begins.

    For one thread at a time, which may be another one for each phase.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = self._ended_s = clock()
        self._ms: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Count the time since the last phase, or since the making, as this one."""
        now_s = self._clock()
        passed_ms = 1000 * (now_s - self._ended_s)
        self._ms[phase] = round(self._ms.get(phase, 0.0) + passed_ms, 3)
        self._ended_s = now_s

    @property
    def by_name(self) -> dict[str, float]:
        """Milliseconds of each phase that has ended."""
        return dict(self._ms)

    @property
    def total_ms(self) -> int:
        """Milliseconds of all phases that have ended."""
        return round(1000 * (self._ended_s - self._began_s))
