"""When the scheduler itself heard of Kafka: only what it could have heard counts as silence. Pure.

Kept by `scheduler/journal.py`; asked by `scheduler/decisions/membership.py` and the controller.
"""

from dataclasses import dataclass

OUTAGE_MS = 4_000
"""Who heard nothing for longer was out of contact, and measures everybody's silence anew."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The present contact, or the last one."""

    since_ms: int = 0
    """When it began; 0 for the first one, so that signs read at start count as of their stamps."""
    last_ms: int = 0
    """When anything was heard last."""

    def heard(self, now_ms: int) -> "Contact":
        """After a record or an answer."""
        return Contact(now_ms if self.lost(now_ms) else self.since_ms, now_ms)

    def lost(self, now_ms: int) -> bool:
        """Whether there is none at the moment."""
        return now_ms - self.last_ms > OUTAGE_MS

    def silence_ms(self, sign_ms: int) -> int:
        """For how long somebody was silent who gave a sign then, as far as it was listened to."""
        return max(0, self.last_ms - max(sign_ms, self.since_ms))
