"""The sessions of a log, read by `ExpectedSession`, which shares no code with the fold."""

from dataclasses import dataclass, field

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.trajectories.oracle import ExpectedSession, ExpectedTurn


@dataclass
class KnownSession:
    """A session after a part of its log; `completed` are its turns in the order of completion."""

    session: ExpectedSession
    completed: list[ExpectedTurn] = field(default_factory=list)


@dataclass
class LoggedSession:
    """A session: its events with their offsets, and its state after them."""

    partition: int
    session: ExpectedSession
    events: list[tuple[int, Record]] = field(default_factory=list)
    """Behind the first, which opened it; without those of managers that had lost it."""
    joins: list[r.TurnJoined] = field(default_factory=list)
    """Those that count."""
    ignored: int = 0

    def until(self, offset: int) -> KnownSession:
        """Return the session after the events before an offset."""
        past = KnownSession(ExpectedSession(self.session.opened, self.session.offset))
        for place, event in self.events:
            if place < offset:
                counts = past.session.take(event, place)
                if counts and isinstance(event, r.TurnCompleted):
                    turn = past.session.turn(event.turn_id)
                    past.completed += [turn] if turn is not None else []
        return past


def logged_sessions(partition: int, events: list[Record]) -> dict[str, LoggedSession]:
    """Return all sessions of a partition's log."""
    sessions: dict[str, LoggedSession] = {}
    epoch = -1
    for offset, event in enumerate(events):
        if isinstance(event, r.PartitionClaimed):
            epoch = max(epoch, event.epoch)
            continue
        written = getattr(event, "epoch", None)
        if written is not None and written < epoch:
            continue  # of a manager that had lost the partition
        session_id: str = event.session_id  # type: ignore[attr-defined]
        logged = sessions.get(session_id)
        if logged is None:
            if isinstance(event, r.SessionOpened):
                sessions[session_id] = LoggedSession(partition, ExpectedSession(event, offset))
        elif not logged.session.finalized:
            logged.events.append((offset, event))
            if logged.session.take(event, offset):
                logged.joins += [event] if isinstance(event, r.TurnJoined) else []
            elif not isinstance(event, r.CommandRefused):
                logged.ignored += 1
    return sessions
