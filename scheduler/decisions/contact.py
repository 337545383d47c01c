"""The scheduler's contact with Kafka, so that an outage does not look like lost workers. Pure.

A process counts as absent only for the time in which the scheduler could have read its records.
Kept by `scheduler/journal.py`; used by `scheduler/decisions/membership.py` and the controller.
"""

from dataclasses import dataclass
from math import inf

OUTAGE_MS = 4_000
"""After this long without an answer contact is lost; all waiting times then begin anew."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The present period of contact, or the last one; times in milliseconds since the epoch."""

    since_ms: int = 0
    """Its begin; 0 for the first one, so that heartbeats read at start count from their stamps."""
    last_ms: int = 0
    """Time of the last record or answer."""

    def renewed(self, now_ms: int) -> "Contact":
        """Return the contact after a record or an answer at `now_ms`."""
        return Contact(now_ms if self.lost(now_ms) else self.since_ms, now_ms)

    def lost(self, now_ms: int) -> bool:
        """Return True if there is no contact at `now_ms`."""
        return now_ms - self.last_ms > OUTAGE_MS

    def waited_ms(self, since_ms: int) -> int:
        """Return how long the scheduler has waited in contact with Kafka since `since_ms`."""
        return max(0, self.last_ms - max(since_ms, self.since_ms))

    def fresh_ms(self, timeout_ms: int) -> float:
        """Return the time from which on nothing has been waited for longer than `timeout_ms`."""
        due_ms = self.last_ms - timeout_ms
        return -inf if self.since_ms >= due_ms else due_ms
