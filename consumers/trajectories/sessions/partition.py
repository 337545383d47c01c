"""A `sessions` partition's state in a manager: the log's state, and this manager's own progress.

Sessions and epoch follow from the log alone. The rest is this process's own record: events appended
and not read back, commits, and the time as of which all commands were read (`CommandsRead`).
"""

from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seamlessflow.consumers.trajectories.sessions import calls, fold
from seamlessflow.consumers.trajectories.sessions.addressing import addressed
from seamlessflow.consumers.trajectories.sessions.ended import EndedSessions, kept_of
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.open_sessions import OpenSessions
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import PartitionClaimed, Record, SessionOpened, Trajectory
from seamlessflow.schemas.topics import SESSIONS, GatewayQuestion, Headers, SessionCommand


@dataclass(slots=True)
class LoggedPartition:
    """A partition's sessions, and its newest claim's epoch."""

    number: int
    epoch: int = field(default=-1, kw_only=True)
    position: int = field(default=0, kw_only=True)
    """Offset behind the last event."""
    sessions: MutableMapping[str, Session] = field(default_factory=dict, kw_only=True)
    """Sessions in opening order, until the caller drops them."""

    def apply(self, event: Record, offset: int, strictness: Callable[[str], Strictness]) -> Folded:
        """Apply the partition's next record. `strictness`: see `fold.apply`.

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
        """Return True if the event's manager wrote it after its claim had ended."""
        # Only managers' events have an epoch; workers do not know it.
        epoch: int | None = getattr(event, "epoch", None)
        return epoch is not None and epoch < self.epoch

    def _claim(self, event: PartitionClaimed) -> bool:
        """Return True if the claim is newer than all earlier ones."""
        if event.epoch <= self.epoch:
            return False
        self.epoch = event.epoch
        return True


_NODE_BYTES = 256
_OUTAGE_MS = 5_000
"""Ends are measured every second; a longer gap means that Kafka or this manager was away."""
_LONGEST_HOLD_MS = 30_000


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Metadata for the committed `requests` offset: how far `sessions` was processed."""

    epoch: int = 0
    rebuild: int = -2
    """Offset in `sessions` to rebuild from: the oldest open session's first event."""
    covered: int = 0
    """Offset in `sessions`; earlier events' replies are sent and their trajectories committed."""
    rebuild_epoch: int = -1
    """Epoch that holds at `rebuild`; its claim may be before that offset."""

    @property
    def committed(self) -> bool:
        """False if no owner committed a progress, or the consumer group has lost it."""
        return self.rebuild >= 0

    def encode(self) -> str:
        """Return the metadata to commit."""
        return f"{self.epoch},{self.rebuild},{self.covered},{self.rebuild_epoch}"

    @classmethod
    def decode(cls, metadata: str) -> "PartitionProgress":
        """Return the progress committed as `metadata`; the log's beginning if it is empty."""
        if not metadata:
            return cls()
        epoch, rebuild, covered, rebuild_epoch = map(int, metadata.split(","))
        return cls(epoch, rebuild, covered, rebuild_epoch)


class Emission(NamedTuple):
    """A finalized session's records, committed in one transaction."""

    trajectory: Trajectory
    ended: r.EndedSession
    end_trace: Headers = ()
    """Trace of the session's last event."""
    turn_traces: tuple[Headers, ...] = ()
    """Traces of its turns, as far as they have any."""
    epoch: int = 0
    """Epoch in which the session was opened."""

    @property
    def size(self) -> int:
        """The trajectory's approximate size in bytes."""
        made = self.trajectory
        arrays = len(made.tokens) + len(made.logprobs) + len(made.loss_mask)
        return arrays + len(self.ended.calls) + _NODE_BYTES * (1 + len(made.nodes))


@dataclass(slots=True)
class CommandsRead:
    """Comparison between the read offset in `requests` and measured ends of the partition.

    A missed deadline means that no request came in time. That is certain only once all requests are
    read. They may not be read after a Kafka outage, or in a manager that stood still.
    """

    _as_of_ms: int = 0
    _hold_until_ms: int = 0
    _measured_ms: int | None = None
    _target: tuple[int, int] | None = None
    """Measured end that reading must still reach, and the time before its measurement."""

    def note_takeover(self, last_event_ms: int) -> None:
        """Begin to own the partition, whose last event was recorded at this time.

        Since then no manager answered, or no client asked. Either way it counts as an outage for
        clients.
        """
        self._measured_ms = last_event_ms

    def note_end(self, end: int, asked_ms: int, now_ms: int) -> None:
        """Note a partition end that was measured between these two times.

        After an outage, or a time without an owner, no deadline passes for as long as that lasted,
        at most 30 s. Clients need the time to send what they could not send before.
        """
        away_ms = 0 if self._measured_ms is None else asked_ms - self._measured_ms
        if away_ms > _OUTAGE_MS:
            self._hold_until_ms = now_ms + min(away_ms, _LONGEST_HOLD_MS)
        self._measured_ms = asked_ms
        if self._target is None:
            self._target = end, asked_ms

    def as_of_ms(self, next_request: int, now_ms: int) -> int:
        """Return the time up to which deadlines may pass; `next_request` is the next offset."""
        if self._target is not None and self._target[0] <= next_request:
            self._as_of_ms = self._target[1]
            self._target = None
        return self._as_of_ms if self._hold_until_ms <= now_ms else 0


@dataclass(slots=True)
class Partition(LoggedPartition):
    """A partition's state; `owned` once its own claim was read back as an epoch's first."""

    sessions: OpenSessions = field(default_factory=OpenSessions, kw_only=True)
    progress: PartitionProgress = PartitionProgress()
    manager: str = ""
    owned: bool = False
    fenced: bool = False
    """True once another manager's newer claim was read: that manager acts from now on."""
    owner_since_ms: int = 0
    """Time of the current owner's claim."""
    ended: EndedSessions = field(default_factory=EndedSessions)
    commands: dict[str, int] = field(default_factory=dict)
    """Offset in `requests` for each command whose event is not read back yet, in reading order."""
    next_request: int = 0
    carried_out: set[str] = field(default_factory=set)
    """Commands carried out or refused before this manager owned the partition.

    `Session.commands` is not enough: the session may be finalized, or its name may now stand for
    another session.
    """
    read_again_to: int | None = 0
    """Former owners may have carried out commands before this `requests` offset; None: unknown."""
    commands_read: CommandsRead = field(default_factory=CommandsRead)
    _last_event_ms: int | None = None
    last_committed: tuple[int, PartitionProgress] | None = None
    named: dict[str, list[str]] = field(default_factory=dict)
    """By name, its sessions that are not finalized, as ids, oldest first."""
    unread: Counter[str] = field(default_factory=Counter)
    """Number of events appended here and not read back yet, by session name."""
    given_up: set[str] = field(default_factory=set)
    """Ids of sessions that failed here; the events that end them are appended."""
    traced: dict[str, dict[str, Headers]] = field(default_factory=dict)
    """Trace by session id and turn id, for turns whose session is not finalized."""
    emitted: list[Emission] = field(default_factory=list)
    """Emissions that are not committed yet, oldest first."""

    def __post_init__(self) -> None:
        self.epoch = self.progress.rebuild_epoch

    def apply(self, event: Record, offset: int, strictness: Callable[[str], Strictness]) -> Folded:
        """Apply the partition's next record; see `LoggedPartition.apply`."""
        session_id: str | None = getattr(event, "session_id", None)
        present = session_id in self.sessions
        folded = super(Partition, self).apply(event, offset, strictness)
        if session_id is None or self.outdated(event):
            return folded
        if folded.session is not None:
            self.sessions.apply(folded.session, event)
        self._last_event_ms = getattr(event, "at_ms", self._last_event_ms)
        epoch: int | None = getattr(event, "epoch", None)
        if epoch is not None:
            self._settle(event, session_id, epoch)
        if not present and folded.session is not None and folded.session.opened.name:
            self.named.setdefault(folded.session.opened.name, []).append(session_id)
        return folded

    def find(self, command: SessionCommand | GatewayQuestion) -> Session | None:
        """Return the session that a command addresses, or None."""
        return addressed(command, self.sessions, self.named, self.ended)

    def too_early(self, command: SessionCommand) -> bool:
        """Return True if the command may concern a session that ended under a former owner."""
        if self.ended.complete:
            return False
        session = self.find(command)
        # A call with a key may repeat one that an earlier session with this name got.
        return session is None or (
            isinstance(command, r.AssignReward | r.CloseSession)
            and command.idempotency_key is not None
            and command.session_id != session.session_id
        )

    def used(self, session_id: str) -> bool:
        """Return True if a session with this id was opened before."""
        return session_id in self.sessions or self.has_ended(session_id)

    def reading_back(self, session_id: str) -> bool:
        """Return True while events for sessions with the same name are still to be read back."""
        return session_name(session_id) in self.unread

    def note_trace(self, event: Record, trace: Headers) -> None:
        """Keep an accepted turn event's trace for the session's trajectory."""
        if isinstance(event, r.TurnStarted | r.TurnCompleted):
            self.traced.setdefault(event.session_id, {})[event.turn_id] = trace

    def emit(self, session: Session, made: Trajectory, end_trace: Headers = ()) -> None:
        """End a finalized session, and keep its trajectory until it is committed."""
        turns = tuple(self.traced.get(session.session_id, {}).values())
        epoch = session.opened.epoch
        self.emitted.append(Emission(made, self.end(session), end_trace, turns, epoch))

    def end(self, session: Session) -> r.EndedSession:
        """Drop a finalized session; return the record that is kept about it."""
        del self.sessions[session.session_id]
        self.traced.pop(session.session_id, None)
        if session.opened.name:
            self._forget_name(session)
        self.given_up.discard(session.session_id)
        kept = kept_of(session)
        self.ended.add(kept)
        return kept

    def has_ended(self, session_id: str) -> bool:
        """Return True if a session with this id was finalized."""
        return calls.id_hash(session_id) in self.ended

    def _forget_name(self, session: Session) -> None:
        others = self.named[session.opened.name]
        others.remove(session.session_id)
        if not others:
            del self.named[session.opened.name]

    def note_bounds(self, start: int, end: int, asked_ms: int, now_ms: int) -> None:
        """Note the bounds of `requests`, measured between these two times."""
        # Commands that retention removed before they were read will not come.
        self.next_request = max(self.next_request, start)
        if self.read_again_to is None:
            self.read_again_to = end
        self.commands_read.note_end(end, asked_ms, now_ms)

    def may_pass_ms(self, now_ms: int) -> int:
        """Return the time up to which deadlines may pass."""
        return self.commands_read.as_of_ms(self.next_request, now_ms)

    def note_appended(self, events: list[Record]) -> None:
        """Count events that were sent, until `apply` reads them back."""
        for event in events:
            self.unread[session_name(event.session_id)] += 1  # type: ignore[attr-defined]

    def note_committed(self, emissions: int, progress: tuple[int, PartitionProgress]) -> None:
        """Drop the first `emissions`, which a transaction committed."""
        del self.emitted[:emissions]
        self.last_committed = progress

    @property
    def commits(self) -> bool:
        """Return True for an owner, and for a reader of the whole log when no progress is known.

        Such a reader makes the same trajectories as any owner. Kafka takes them only from the
        member that the partition is assigned to. `covered` tells the next owner which trajectories
        exist.
        """
        return self.owned or not (self.progress.committed or self.fenced)

    @property
    def uncommitted(self) -> bool:
        """Return True if offset or progress changed since the last commit."""
        return self.committable() != self.last_committed

    def committable(self, emissions: int | None = None) -> tuple[int, PartitionProgress]:
        """Return the `requests` offset to commit, and the progress to commit with it.

        The progress covers the first `emissions`, or all, if they are committed in the same
        transaction.
        """
        later = [] if emissions is None else self.emitted[emissions:]
        covered = later[0].trajectory.last_offset if later else self.position
        begun = [(emission.trajectory.first_offset, emission.epoch) for emission in later]
        rebuild, rebuild_epoch = min([self._rebuild_from(), *begun])
        # Not the first value: a command that was read twice keeps its place but has its later
        # offset.
        offset = min(self.commands.values(), default=self.next_request)
        return offset, PartitionProgress(self.epoch, rebuild, covered, rebuild_epoch)

    def _rebuild_from(self) -> tuple[int, int]:
        if self.read_again_to is None or self.next_request < self.read_again_to:
            # Old commands are still being read. The next owner may read them too. It must rebuild
            # from before their events, so that it knows they were carried out.
            return self.progress.rebuild, self.progress.rebuild_epoch
        return self.sessions.oldest or (self.position, self.epoch)

    def _claim(self, event: r.PartitionClaimed) -> bool:
        if not super(Partition, self)._claim(event):
            return False
        mine = event.manager == self.manager
        self.fenced |= self.owned and not mine
        self.owned = mine and not self.fenced
        self.owner_since_ms = event.at_ms
        if self.owned and self._last_event_ms is not None:
            self.commands_read.note_takeover(self._last_event_ms)
        return True

    def _settle(self, event: Record, session_id: str, epoch: int) -> None:
        command_id = getattr(event, "command_id", None)
        if command_id is not None:
            self.commands.pop(command_id, None)
            if not self.owned:
                self.carried_out.add(command_id)
        # Only the owner writes events with its epoch, so `note_appended` counted this one.
        if self.owned and epoch == self.epoch:
            name = session_name(session_id)
            if self.unread[name] <= 1:
                del self.unread[name]
            else:
                self.unread[name] -= 1
