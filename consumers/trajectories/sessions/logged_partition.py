"""State of one partition of `sessions` that follows from its log alone: sessions and epoch."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.schemas.records import PartitionClaimed, Record, SessionOpened
from seamlessflow.schemas.topics import SESSIONS


@dataclass(slots=True)
class LoggedPartition:
    """Sessions of a partition, and the epoch of its newest claim."""

    number: int
    epoch: int = field(default=-1, kw_only=True)
    position: int = field(default=0, kw_only=True)
    """Offset behind the last event."""
    sessions: MutableMapping[str, Session] = field(default_factory=dict, kw_only=True)
    """Sessions in the order in which they were opened, until the caller drops them."""

    def apply(self, event: Record, offset: int, strictness: Callable[[str], Strictness]) -> Folded:
        """Apply the next record of the partition. `strictness`: see `fold.apply`.

        Raises `NewerRelease` for a session whose rules this release does not know.
        """
        self.position = offset + 1
        if isinstance(event, PartitionClaimed):
            return Folded(None, self._claim(event))
        session_id: str | None = getattr(event, "session_id", None)
        if session_id is None or self.outdated(event):
            return Folded(None, False)
        session = self.sessions.get(session_id)
        if isinstance(event, SessionOpened) and event.fold_version > fold.FOLD_VERSION:
            rules = f"session {session_id} with the fold's rules {event.fold_version}"
            raise NewerRelease(SESSIONS.name, self.number, offset, rules)
        folded = fold.apply(session, event, offset, strictness)
        if session is None and folded.session is not None:
            self.sessions[session_id] = folded.session
        return folded

    def outdated(self, event: Record) -> bool:
        """Return True if a manager wrote the event whose claim was over."""
        # Only managers' events have an epoch; workers do not know it.
        epoch: int | None = getattr(event, "epoch", None)
        return epoch is not None and epoch < self.epoch

    def _claim(self, event: PartitionClaimed) -> bool:
        """Return True if the claim is newer than all before it."""
        if event.epoch <= self.epoch:
            return False
        self.epoch = event.epoch
        return True
