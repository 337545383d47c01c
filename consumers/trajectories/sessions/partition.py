"""One partition of `sessions` as a manager sees it: its sessions, its owner, what is still unread.

Folding is deterministic; the rest is this process's book-keeping of what it appended and committed.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.trajectories.sessions import fold
from consumers.trajectories.sessions.addressing import Command, addressed
from consumers.trajectories.sessions.message_keys import Strictness
from consumers.trajectories.sessions.session import Session
from schemas import records as r
from schemas.identity import session_name
from schemas.records import CountTokens, Record, Trajectory

ENDED_IDS_KEPT = 100_000
"""Ids of finalized sessions that are remembered, so that none is used twice."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What is committed with the offset of `requests`, as its metadata."""

    epoch: int = 0
    rebuild: int = -2
    """Offset of `sessions` to fold from: first event of the oldest open session."""
    covered: int = 0
    """Events before it were answered, and their trajectories emitted."""
    rebuild_epoch: int = -1
    """Epoch in force at `rebuild`; its claim may stand before it."""

    def encode(self) -> str:
        """As committed."""
        return f"{self.epoch},{self.rebuild},{self.covered},{self.rebuild_epoch}"

    @classmethod
    def decode(cls, metadata: str) -> "PartitionProgress":
        """From what was committed; the beginning of the log where nothing was."""
        if not metadata:
            return cls()
        epoch, rebuild, covered, rebuild_epoch = map(int, metadata.split(","))
        return cls(epoch, rebuild, covered, rebuild_epoch)


@dataclass(slots=True)
class Partition:
    """State of one partition. `owned` once its own claim was read back as the first of an epoch."""

    number: int
    progress: PartitionProgress
    manager: str
    owned: bool = False
    fenced: bool = False
    """Whether a newer claim than its own was read: somebody else acts now."""
    epoch: int = field(init=False)
    owner_since_ms: int = 0
    """When its owner claimed it."""
    position: int = 0
    sessions: dict[str, Session] = field(default_factory=dict)
    ended: OrderedDict[str, None] = field(default_factory=OrderedDict)
    commands: dict[str, int] = field(default_factory=dict)
    """Offset in `requests` of each command whose event was not read back yet, in order."""
    next_request: int = 0
    carried_out: set[str] = field(default_factory=set)
    """Commands carried out or refused before this manager owned the partition. A session's own are
    not enough: it may be over, or its name may mean another one by now."""
    read_again_to: int | None = 0
    """Offset in `requests` before which commands may have been carried out by former owners; None
    until it is known."""
    last_committed: tuple[int, PartitionProgress] | None = None
    named: dict[str, list[str]] = field(default_factory=dict)
    """Sessions of each name in the order they were begun, until they are finalized."""
    unread: Counter[str] = field(default_factory=Counter)
    """How many events under a session's name were appended here and not read back yet."""
    emitted: list[Trajectory] = field(default_factory=list)
    """Trajectories that are not committed yet."""

    def __post_init__(self) -> None:
        self.epoch = self.progress.rebuild_epoch

    def apply(
        self, event: Record, offset: int, strictness: Callable[[str], Strictness]
    ) -> fold.Folded:
        """Takes in the next record of the partition."""
        self.position = offset + 1
        if isinstance(event, r.PartitionClaimed):
            return fold.Folded(None, self._claim(event))
        session_id: str | None = getattr(event, "session_id", None)
        # Only managers give an epoch; workers do not know it.
        epoch: int | None = getattr(event, "epoch", None)
        if session_id is None or (epoch is not None and epoch < self.epoch):
            return fold.Folded(None, False)
        if epoch is not None:
            self._settle(event, session_id, epoch)
        session = self.sessions.get(session_id)
        folded = fold.apply(session, event, offset, strictness)
        if session is None and folded.session is not None:
            self.sessions[session_id] = folded.session
            if folded.session.opened.name:
                self.named.setdefault(folded.session.opened.name, []).append(session_id)
        return folded

    def find(self, command: Command | CountTokens) -> Session | None:
        """The session that a command is for."""
        return addressed(command, self.sessions, self.named, self.ended.__contains__)

    def used(self, session_id: str) -> bool:
        """Whether a session of this id was opened before."""
        return session_id in self.sessions or session_id in self.ended

    def reading_back(self, session_id: str) -> bool:
        """Whether events of the session, or of others of its name, are still to be read back."""
        return session_name(session_id) in self.unread

    def end(self, session: Session) -> None:
        """Forgets a finalized session but for its id."""
        del self.sessions[session.session_id]
        if session.opened.name:
            self._forget_name(session)
        self.ended[session.session_id] = None
        if len(self.ended) > ENDED_IDS_KEPT:
            self.ended.popitem(last=False)

    def _forget_name(self, session: Session) -> None:
        others = self.named[session.opened.name]
        others.remove(session.session_id)
        if not others:
            del self.named[session.opened.name]

    def appended(self, events: list[Record]) -> None:
        """Notes that these manager events were sent to the log."""
        for event in events:
            self.unread[session_name(event.session_id)] += 1  # type: ignore[attr-defined]

    def committed(self, trajectories: int, progress: tuple[int, PartitionProgress]) -> None:
        """Notes what a transaction committed."""
        del self.emitted[:trajectories]
        self.last_committed = progress

    @property
    def uncommitted(self) -> bool:
        """Whether anything has moved since the last commit."""
        return self.committable() != self.last_committed

    def committable(self) -> tuple[int, PartitionProgress]:
        """Next offset of `requests` to read, and the progress that goes with it."""
        rebuild, rebuild_epoch = self._rebuild_from()
        # Not just the first: a command that came twice stands at the place of the earlier one.
        offset = min(self.commands.values(), default=self.next_request)
        return offset, PartitionProgress(self.epoch, rebuild, self.position, rebuild_epoch)

    def _rebuild_from(self) -> tuple[int, int]:
        if self.read_again_to is None or self.next_request < self.read_again_to:
            # The next owner may read such commands too, and has to know that they were carried out.
            return self.progress.rebuild, self.progress.rebuild_epoch
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None:
            return self.position, self.epoch
        return oldest.first_offset, oldest.opened.epoch

    def _claim(self, event: r.PartitionClaimed) -> bool:
        if event.epoch <= self.epoch:
            return False
        self.epoch = event.epoch
        mine = event.manager == self.manager
        self.fenced |= self.owned and not mine
        self.owned = mine and not self.fenced
        self.owner_since_ms = event.at_ms
        return True

    def _settle(self, event: Record, session_id: str, epoch: int) -> None:
        command_id = getattr(event, "command_id", None)
        if command_id is not None:
            self.commands.pop(command_id, None)
            if not self.owned:
                self.carried_out.add(command_id)
        if self.owned and epoch == self.epoch:
            name = session_name(session_id)
            if self.unread[name] <= 1:
                del self.unread[name]
            else:
                self.unread[name] -= 1
