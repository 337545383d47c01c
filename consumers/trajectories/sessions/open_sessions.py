"""A partition's open sessions: some in memory, and idle ones with their state in a file.

A spilled session comes back to memory, exactly as it was, with the next look at it. Until then
memory holds only what owners ask about all sessions at once. `acting.Spilling` spills by an
estimate: how much memory each event adds to its session. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from seamlessflow.consumers.trajectories.sessions.session import Output, Session
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_OPENED_BYTES = 3_500
_TURN_BYTES = 5_500
"""Most of it is for the turn's record with about fifty fields."""
_OUTPUT_BYTES = 250
_OTHER_BYTES = 500
_MESSAGE_BYTES = 48


class SpillStore(Protocol):
    """States of spilled sessions, by numbers that the store gives them."""

    count: int
    """Number of states in the store."""
    held_bytes: int
    """Their total size."""
    reads: int
    """Number of states taken so far."""

    def write(self, state: bytes) -> int:
        """Keep a state and return its number. Raises `OSError` if there is no room for it."""

    def take(self, number: int) -> bytes:
        """Return and drop a state. Raises `SpillUnreadable`."""

    def drop(self, number: int) -> None:
        """Drop a state."""


@dataclass(frozen=True, slots=True)
class SpilledSession:
    """The facts about a session that are known without reading it back."""

    number: int
    store: SpillStore
    weight: int
    first_offset: int
    epoch: int
    """Epoch in which it was opened."""
    due_ms: int | None
    """Its earliest deadline."""


class OpenSessions(MutableMapping[str, Session]):
    """Sessions by id, in opening order. `[]` and `get` read back."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session | SpilledSession] = {}
        self._weights: dict[str, int] = {}
        """Estimated bytes for each session in memory."""
        self._idle: dict[str, None] = {}
        """Sessions in memory without a running turn, the longest untouched first."""
        self._pinned: set[str] = set()
        """Sessions that stay in memory, because some of their events are still held."""
        self.bytes_in_memory = 0

    def __getitem__(self, session_id: str) -> Session:
        entry = self._sessions[session_id]
        return entry if isinstance(entry, Session) else self._read_back(session_id, entry)

    def get(self, session_id: str, default: Session | None = None) -> Session | None:  # type: ignore[override]
        """Return the session with this id, or `default`."""
        entry = self._sessions.get(session_id)
        if isinstance(entry, Session):
            return entry
        return default if entry is None else self._read_back(session_id, entry)

    def __setitem__(self, session_id: str, session: Session) -> None:
        self._sessions[session_id] = session
        self._weights[session_id] = 0

    def __delitem__(self, session_id: str) -> None:
        gone = self._sessions.pop(session_id)
        if isinstance(gone, SpilledSession):
            gone.store.drop(gone.number)
        self._leave_memory(session_id)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def apply(self, session: Session, event: Record) -> None:
        """Note that an event was applied to a session, which is in memory."""
        session_id = session.session_id
        more = _weight(event)
        self._weights[session_id] += more
        self.bytes_in_memory += more
        self._idle.pop(session_id, None)
        if not session.running and session_id not in self._pinned:
            self._idle[session_id] = None

    def pin(self, session_id: str) -> None:
        """Keep a session in memory until `unpin`."""
        self._pinned.add(session_id)
        self._idle.pop(session_id, None)

    def unpin(self) -> None:
        """Let all sessions without a running turn be spilled."""
        pinned, self._pinned = self._pinned, set()
        for session_id in pinned:
            session = self.get(session_id)
            if session is not None and not session.running:
                self._idle[session_id] = None

    @property
    def oldest(self) -> tuple[int, int] | None:
        """The oldest session's first offset and the epoch in which it was opened, or None."""
        for session in self._sessions.values():
            epoch = session.epoch if isinstance(session, SpilledSession) else session.opened.epoch
            return session.first_offset, epoch
        return None

    @property
    def in_memory(self) -> list[Session]:
        """The sessions in memory, including all with a running turn."""
        return [session for session in self._sessions.values() if isinstance(session, Session)]

    @property
    def spilled(self) -> dict[str, SpilledSession]:
        """The sessions that are not in memory, by id."""
        sessions = self._sessions.items()
        return {name: session for name, session in sessions if isinstance(session, SpilledSession)}

    def spilled_due_ms(self, session_id: str) -> int | None:
        """Return a spilled session's earliest deadline; None if it is in memory or unknown."""
        entry = self._sessions.get(session_id)
        return entry.due_ms if isinstance(entry, SpilledSession) else None

    def longest_idle(self) -> Session | None:
        """Return the session in memory that was left untouched longest, or None."""
        session_id = next(iter(self._idle), None)
        entry = None if session_id is None else self._sessions[session_id]
        return entry if isinstance(entry, Session) else None

    def spill(self, session: Session, due_ms: int | None, store: SpillStore) -> None:
        """Write an idle session's state to `store` and drop it from memory. Raises `OSError`."""
        session_id = session.session_id
        number = store.write(state_of(session))
        self._sessions[session_id] = SpilledSession(
            number,
            store,
            self._weights[session_id],
            session.first_offset,
            session.opened.epoch,
            due_ms,
        )
        self._leave_memory(session_id)

    def clear(self) -> None:
        """Drop all sessions."""
        for session_id in list(self):
            del self[session_id]

    def _read_back(self, session_id: str, spilled: SpilledSession) -> Session:
        session = session_of(spilled.store.take(spilled.number))
        self._sessions[session_id] = session
        self._weights[session_id] = spilled.weight
        self.bytes_in_memory += spilled.weight
        if session_id not in self._pinned:
            self._idle[session_id] = None
        return session

    def _leave_memory(self, session_id: str) -> None:
        self.bytes_in_memory -= self._weights.pop(session_id, 0)
        self._idle.pop(session_id, None)


def _weight(event: Record) -> int:
    """Return about how many more bytes a session takes once the event is applied.

    It counts only the event's sizes. Measured with `tracemalloc` on recorded sessions with 30 to
    3,200 tokens a turn: within a tenth of the memory they take. Output that a running turn keeps
    for retries is left out, since it is dropped when the turn ends.
    """
    measure = _MEASURES.get(type(event))
    return _OTHER_BYTES if measure is None else measure(event)


def _opened_bytes(event: r.SessionOpened) -> int:
    fork = event.fork
    if fork is None:
        return _OPENED_BYTES
    prompts = [turn.prompt for turn in fork.turns]
    prompts += () if fork.prompt is None else (fork.prompt,)
    copied = sum(
        len(prompt.ids) + sum(map(len, prompt.messages)) + _TURN_BYTES for prompt in prompts
    )
    return _OPENED_BYTES + copied + sum(len(turn.ids) + len(turn.message) for turn in fork.turns)


def _started_bytes(event: r.TurnStarted) -> int:
    messages = sum(map(len, event.new_messages)) + _MESSAGE_BYTES * len(event.new_messages)
    # The tokens stand in the record and in the tree.
    return _TURN_BYTES + 2 * len(event.suffix_ids) + messages + len(event.tools or b"")


def _output_bytes(event: Output) -> int:
    arrays = sum(len(tensor.data or b"") for tensor in event.tensors)
    return _OUTPUT_BYTES + len(event.token_ids) + len(event.logprobs) + arrays


def _completed_bytes(event: r.TurnCompleted) -> int:
    return _output_bytes(event) + len(event.message)


_MEASURES: Mapping[type[Record], Callable[[Any], int]] = {
    r.SessionOpened: _opened_bytes,
    r.TurnStarted: _started_bytes,
    r.TurnProgressed: _output_bytes,
    r.TurnInterrupted: _output_bytes,
    r.TurnCompleted: _completed_bytes,
}
