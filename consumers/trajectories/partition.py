"""One partition of `sessions` as a manager sees it: its sessions, its owner, what is still unread.

Folding is deterministic; the rest is this process's book-keeping of what it appended and committed.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.trajectories import fold
from consumers.trajectories.assemble import trajectory
from consumers.trajectories.messages import Strictness
from consumers.trajectories.session import Session
from infra.kafka import Received
from schemas import records as r
from schemas.records import Record, Trajectory

ENDED_IDS_KEPT = 100_000
"""Ids of finalized sessions that are remembered, so that none is used twice."""

_MANAGED = (
    r.SessionOpened,
    r.TurnStarted,
    r.TurnDispatched,
    r.TurnJoined,
    r.TurnCancelled,
    r.RewardAssigned,
    r.SessionClosed,
    r.SessionFinalized,
    r.CommandRefused,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is committed with the offset of `requests`, as its metadata."""

    epoch: int = 0
    rebuild: int = -2
    """Offset of `sessions` to fold from: first event of the oldest open session."""
    covered: int = 0
    """Events before it were answered, and their trajectories emitted."""

    def encode(self) -> str:
        """As committed."""
        return f"{self.epoch},{self.rebuild},{self.covered}"

    @classmethod
    def decode(cls, metadata: str) -> "Progress":
        """From what was committed; the beginning of the log where nothing was."""
        if not metadata:
            return cls()
        epoch, rebuild, covered = map(int, metadata.split(","))
        return cls(epoch, rebuild, covered)


@dataclass(slots=True)
class Partition:
    """State of one partition. `owned` once its own claim was read back as the first of an epoch."""

    number: int
    progress: Progress
    manager: str
    owned: bool = False
    fenced: bool = False
    """Whether a newer claim than its own was read: somebody else acts now."""
    epoch: int = -1
    position: int = 0
    sessions: dict[str, Session] = field(default_factory=dict)
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)
    commands: dict[str, int] = field(default_factory=dict)
    """Offset in `requests` of each command whose event was not read back yet, in order."""
    next_request: int = 0
    last_committed: tuple[int, Progress] | None = None
    unread: Counter[str] = field(default_factory=Counter)
    """How many events of a session were appended here and not read back yet."""
    deferred: dict[str, deque[Received]] = field(default_factory=dict)
    """Commands of a session that wait for such events."""
    emitted: list[Trajectory] = field(default_factory=list)
    """Trajectories that are not committed yet."""

    def fold(self, received: Received, strictness: Callable[[str], Strictness]) -> fold.Folded:
        """Takes in the next record of the partition."""
        self.position = received.offset + 1
        event = received.record
        if isinstance(event, r.PartitionClaimed):
            return fold.Folded(None, self._claim(event))
        self._settle(event)
        if self._stale(event):
            return fold.Folded(None, False)
        session_id: str = event.session_id  # type: ignore[attr-defined]
        session = self.sessions.get(session_id)
        policy = session.opened.policy if session else ""
        folded = fold.apply(session, event, received.offset, strictness(policy))
        if session is None and folded.session is not None:
            self.sessions[session_id] = folded.session
        return folded

    def end(self, session: Session) -> None:
        """Forgets a finalized session but for its id."""
        del self.sessions[session.session_id]
        self.ended[session.session_id] = None
        if len(self.ended) > ENDED_IDS_KEPT:
            self.ended.popitem(last=False)

    def appended(self, events: list[Record]) -> None:
        """Notes that these manager events were sent to the log."""
        for event in events:
            self.unread[event.session_id] += 1  # type: ignore[attr-defined]

    def emit(self, session: Session) -> None:
        """Builds the trajectory of a session that was just finalized."""
        self.emitted.append(trajectory(session, self.number))

    def committed(self, trajectories: int, progress: tuple[int, Progress]) -> None:
        """Notes what a transaction committed."""
        del self.emitted[:trajectories]
        self.last_committed = progress

    @property
    def uncommitted(self) -> bool:
        """Whether anything has moved since the last commit."""
        return self.committable() != self.last_committed

    def committable(self) -> tuple[int, Progress]:
        """Next offset of `requests` to read, and the progress that goes with it."""
        oldest = next(iter(self.sessions.values()), None)
        rebuild = self.position if oldest is None else oldest.first_offset
        offset = next(iter(self.commands.values()), self.next_request)
        return offset, Progress(self.epoch, rebuild, self.position)

    def _claim(self, event: r.PartitionClaimed) -> bool:
        if event.epoch <= self.epoch:
            return False
        self.epoch = event.epoch
        mine = event.manager == self.manager
        self.fenced |= self.owned and not mine
        self.owned = mine and not self.fenced
        return True

    def _stale(self, event: Record) -> bool:
        epoch = getattr(event, "epoch", None)
        return epoch is not None and epoch < self.epoch

    def _settle(self, event: Record) -> None:
        command_id = getattr(event, "command_id", None)
        if command_id is not None:
            self.commands.pop(command_id, None)
        written_here = isinstance(event, _MANAGED) or (
            isinstance(event, r.TurnFailed) and event.epoch is not None
        )
        if written_here and getattr(event, "epoch", None) == self.epoch and self.owned:
            session_id: str = event.session_id  # type: ignore[attr-defined]
            if self.unread[session_id] <= 1:
                del self.unread[session_id]
            else:
                self.unread[session_id] -= 1
