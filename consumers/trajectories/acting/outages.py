"""The time since when gateways can read replies again, seen from what the manager itself reads.

While Kafka is there, something comes every second: heartbeats of gateways and workers. After a
silence the first record shows that replies arrive again too, so it is then that an agent may ask
for an answer that it could not get.
"""

from collections.abc import Callable

SILENCE_MS = 10_000
"""Time without a record that counts as an outage: many heartbeats, and far below a minute."""


class Outages:
    """The end of the last silence. Times in milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last_ms = clock()
        self._ended_ms = 0

    def read_records(self) -> None:
        """Take note that records came just now."""
        now_ms = self._clock()
        if now_ms - self._last_ms >= SILENCE_MS:
            self._ended_ms = now_ms
        self._last_ms = now_ms

    def ended_ms(self) -> int:
        """Return when records came again after the last silence; 0 without one."""
        return self._ended_ms
