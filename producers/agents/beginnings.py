"""Contract for the code that copies the beginning of an ended session, for a fork of it.

`recorded/fork/live.py` fulfils it: it knows how recorded sessions are read. Called by `episode.py`.
"""

from typing import Protocol

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.records import ForkedPrefix, ParentPlace


class NoBeginning(SeamlessFlowError):
    """A place from which no session can go on, now or later."""

    lasting = True

    def __init__(self, place: ParentPlace, reason: str) -> None:
        self.session_id = place.session_id
        self.turn = place.turn
        self.reason = reason
        super().__init__(f"turn {place.turn} of session {place.session_id}: {reason}")


class Beginnings(Protocol):
    """Source of beginnings: it copies them from ended sessions in the run's log."""

    def prefix(self, place: ParentPlace, mode: str) -> ForkedPrefix:
        """Return a copy of the session up to a place, for agents that begin in this mode.

        It waits for Kafka during an outage. Raises `NoBeginning`, and `KafkaUnavailable` once the
        process is asked to end.
        """
