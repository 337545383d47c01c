"""Sessions folded again from one partition's events, by the manager's fold. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, any_strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Record, SessionFinalized, SessionOpened

Rewrite = Callable[[Session | None, Record], Iterable[Record]]
"""Function from a session, as it is, and its next event to the events that are folded instead."""


def unchanged(_: Session | None, event: Record) -> Iterable[Record]:
    """Return the event as it was recorded."""
    return (event,)


@dataclass(slots=True)
class Refold:
    """One partition's sessions that a selection may choose, while they are open."""

    log: LoggedPartition
    selection: SessionSelection = field(default_factory=SessionSelection)
    rewrite: Rewrite = unchanged
    strictness: Callable[[str], Strictness] = any_strictness
    """Comparison of messages by policy: it decides how requests are matched, not what is
    assembled."""
    beginnings_gone: int = 0
    """Sessions that ended on the log without their beginning, which retention removed."""
    matched: set[str] = field(default_factory=set)
    """Names in the selection that a session on the log has, even if it is open or not chosen."""
    _left_out: set[str] = field(default_factory=set)
    """Open sessions that are not chosen."""

    def apply(self, event: Record, offset: int) -> Session | None:
        """Apply the next event; if it ends a session, return that session and drop it."""
        self.log.position = offset + 1
        session_id: str | None = getattr(event, "session_id", None)
        if session_id is None:
            self.log.apply(event, offset, self.strictness)
            return None
        if self.log.outdated(event) or self._leaves_out(event, session_id, offset):
            return None
        session = self.log.sessions.get(session_id)
        for record in self.rewrite(session, event):
            self.log.apply(record, offset, self.strictness)
        if not isinstance(event, SessionFinalized):
            return None
        if session is None or session.finalized_at_ms is None:
            self.beginnings_gone += session is None
            return None
        return self.log.sessions.pop(session_id)

    @property
    def open(self) -> int:
        """Count of chosen sessions that did not end yet."""
        return len(self.log.sessions)

    @property
    def rebuild_from(self) -> tuple[int, int]:
        """Offset from which the open sessions can be folded again, and the epoch in force there."""
        oldest = next(iter(self.log.sessions.values()), None)
        if oldest is None:
            return self.log.position, self.log.epoch
        return oldest.first_offset, oldest.opened.epoch

    def _leaves_out(self, event: Record, session_id: str, offset: int) -> bool:
        """Return True if the event's session is not chosen."""
        if isinstance(event, SessionOpened):
            self.matched.update(self.selection.names_of(event))
        if (
            isinstance(event, SessionOpened)
            and session_id not in self.log.sessions
            and not self.selection.may_choose(event, self.log.number, offset)
        ):
            self._left_out.add(session_id)
        left_out = session_id in self._left_out
        if left_out and isinstance(event, SessionFinalized):
            self._left_out.discard(session_id)
        return left_out
