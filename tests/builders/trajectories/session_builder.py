"""Sessions made by folding events one after the other."""

from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.schemas.records import Record, Trajectory
from tests.builders.records.sessions import closed, finalized, opened, rewarded


class SessionBuilder:
    """A session and, for each event applied to it, if the fold accepted it."""

    def __init__(self, strictness: Strictness = "arguments") -> None:
        self._strictness: Strictness = strictness
        self.accepted: list[bool] = []
        self.offset = 100
        """Of the next event on the log."""
        self._session: Session | None = None

    def apply(self, *events: Record) -> "SessionBuilder":
        for event in events:
            folded = fold.apply(self._session, event, self.offset, lambda _: self._strictness)
            self._session = folded.session
            self.accepted.append(folded.accepted)
            self.offset += 1
        return self

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    def turn(self, turn_id: str = "a") -> Turn:
        return self.session.turns[turn_id]

    def sampled(self, turn_id: str = "a") -> bytes:
        """Return the tokens accepted for a turn."""
        return bytes(self.session.tree.nodes[self.turn(turn_id).node].ids)


def session_after(*events: Record) -> SessionBuilder:
    """Return a session that was opened and to which these events were applied."""
    return SessionBuilder().apply(opened(), *events)


def finished(built: SessionBuilder) -> Trajectory:
    """Return the trajectory after rewarding, closing and finalizing the session."""
    return trajectory(built.apply(rewarded(), closed(), finalized()).session, 5)
