"""The time as of which all commands of a partition were read, so that deadlines may pass. Pure.

A deadline says that something was not asked for in time, which is true only once everything that
was asked for is read: behind an outage of Kafka, or in a manager that stood still, it may not be.
"""

from dataclasses import dataclass

_OUTAGE_MS = 5_000
"""Ends are measured every second; a longer gap means that Kafka or this manager was away."""
_LONGEST_HOLD_MS = 30_000


@dataclass(slots=True)
class CommandsRead:
    """Comparison of the offset that was read with ends of the partition that were measured."""

    _as_of_ms: int = 0
    _hold_until_ms: int = 0
    _measured_ms: int | None = None
    _target: tuple[int, int] | None = None
    """Measured end that is still to be reached, and the time before its measurement."""

    def taken_over(self, last_event_ms: int) -> None:
        """Begin to own the partition, whose last event was recorded at this time.

        Nobody answered since then, or nothing was asked: an outage to clients either way.
        """
        self._measured_ms = last_event_ms

    def measured(self, end: int, asked_ms: int, now_ms: int) -> None:
        """Take an end of the partition that was measured between these two times.

        After an outage, or a time without an owner, no deadline passes for as long as it lasted, at
        most 30 s: clients need time to send what they could not.
        """
        away_ms = 0 if self._measured_ms is None else asked_ms - self._measured_ms
        if away_ms > _OUTAGE_MS:
            self._hold_until_ms = now_ms + min(away_ms, _LONGEST_HOLD_MS)
        self._measured_ms = asked_ms
        if self._target is None:
            self._target = end, asked_ms

    def as_of_ms(self, next_request: int, now_ms: int) -> int:
        """Return the time up to which deadlines may pass, `next_request` being the next offset."""
        if self._target is not None and self._target[0] <= next_request:
            self._as_of_ms, self._target = self._target[1], None
        return self._as_of_ms if self._hold_until_ms <= now_ms else 0
