"""Session under observation: folded event by event from its partition of `sessions`. Pure.

It is folded as by the manager: events from managers whose claim was over do not count.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import PartitionClaimed, Record, SessionOpened


class OutsideSession(SeamlessFlowError):
    """An offset before or behind all of a session's events."""

    lasting = True

    def __init__(self, session_id: str, at: int, first: int, last: int, place: str) -> None:
        self.session_id = session_id
        self.at = at
        self.first = first
        self.last = last
        where = "before its first" if at < first else "behind its last"
        super().__init__(f"--at {at} is {where} event: session {session_id} has {place}")


@dataclass
class ObservedSession:
    """A session by its id, or by a name: then the one that was opened last under it."""

    asked: str
    strictness: Callable[[str], Strictness]
    first: int | None = None
    """Offset of the session's first event; for a name, of the first session's first event."""
    last: int | None = None
    """Offset of its newest event."""
    _partition: Partition | None = field(default=None, init=False)
    _latest: str | None = field(default=None, init=False)

    @property
    def session(self) -> Session | None:
        """The session, or None if it was not opened yet."""
        if self._partition is None or self._latest is None:
            return None
        return self._partition.sessions[self._latest]

    @property
    def finalized(self) -> bool:
        """True if the session has ended for good."""
        return self.session is not None and self.session.finalized_at_ms is not None

    @property
    def place(self) -> str:
        """Its events' offsets and its partition, in words."""
        number = self._partition.number if self._partition else "?"
        return f"events from offset {self.first} to {self.last} of sessions[{number}]"

    def concerns(self, record: Record) -> bool:
        """Return True if the session's fold needs this event."""
        session_id = getattr(record, "session_id", None)
        if session_id is None:
            return isinstance(record, PartitionClaimed)
        return self.asked in (session_id, session_name(session_id))

    def apply(self, item: Received) -> Folded | None:
        """Fold in the partition's next event; return None unless it belongs to the session."""
        self._partition = self._partition or Partition(
            item.partition, PartitionProgress(), manager=""
        )
        if not self.concerns(item.record):
            return None
        folded = self._partition.apply(item.record, item.offset, self.strictness)
        session_id = getattr(item.record, "session_id", None)
        if session_id is None:
            return None
        if folded.accepted and isinstance(item.record, SessionOpened):
            self._latest = session_id
            self.first = item.offset if self.first is None else self.first
        if self.first is not None:
            self.last = item.offset
        return folded


def observed_at(events: Iterable[Received], whole: ObservedSession, at: int) -> ObservedSession:
    """Return a session as it was with the event at offset `at`, and without later events.

    `whole` is the session folded from all `events`. Raises `OutsideSession`.
    """
    if whole.first is not None and whole.last is not None and not whole.first <= at <= whole.last:
        raise OutsideSession(whole.asked, at, whole.first, whole.last, whole.place)
    past = ObservedSession(whole.asked, whole.strictness)
    for item in events:
        if item.offset <= at:
            past.apply(item)
    return past
