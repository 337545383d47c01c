"""Check that every accepted turn has one accepted end, and every answer an end on the log. Pure.

The audit's own fold (`CountedTurn`) is independent of the manager's. A turn ends with the first of:

- `TurnCompleted` from the latest dispatch and the worker that it names, behind all earlier tokens
- `TurnFailed`
- `TurnCancelled`
- the end of its session

Later ends may cross the first and do not count. A worker that ends one dispatch twice still breaks
its promise. That holds even if the fold ignores the second end, for example after the session's
end.
"""

from dataclasses import dataclass, field

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.recorded.audit.invariants.evidence import Kept, Owners, ends_with_run
from seamlessflow.recorded.audit.invariants.ledger import Findings, LogPlace, Seen, place_of
from seamlessflow.recorded.audit.sampled_tokens import CountedTurn, SampledOutput, sampler_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.topics import SESSIONS

LATE_MS = 300_000
"""Most working time of its owner by which an end may be late.

Deadlines pass only after all commands were read, and up to 30 s later after an outage.
"""
OK = 200


@dataclass(slots=True, kw_only=True)
class _AuditedTurn(CountedTurn):
    place: LogPlace
    due_ms: int
    """Working time of the partition's owner at which the turn's deadline passes."""
    late: bool = False


@dataclass(slots=True)
class _AuditedTurns:
    """A session's turns."""

    turns: dict[str, _AuditedTurn] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    """Turns whose beginning retention removed."""
    whole: bool = True
    closed: bool = False
    goes_on: bool = False
    """True if the session may stay open after the run's end."""


class TurnsCheck:
    """Fold over `sessions` and `replies`. `partitions`: the partition count of `sessions`."""

    def __init__(self, kept: Kept, owners: Owners, partitions: int) -> None:
        self.findings = Findings("turns")
        self._kept = kept
        self._owners = owners
        self._partitions = partitions
        self._sessions: dict[str, _AuditedTurns] = {}
        self._ended = Seen()
        self._completed = Seen()
        self._dispatches = Seen()
        """Dispatches whose end a worker has written, even after their session's end."""
        self._answers: list[tuple[LogPlace, str, str]] = []

    @property
    def open(self) -> int:
        """Count of turns without an end."""
        return sum(
            not turn.over for session in self._sessions.values() for turn in session.turns.values()
        )

    def apply(self, received: Received) -> None:
        """Fold in a record; only events that count are passed in."""
        record = received.record
        if isinstance(record, r.ReplyFinished):
            if record.status == OK:
                self._answers.append((place_of(received), record.session_id, record.turn_id))
            return
        session_id: str | None = getattr(record, "session_id", None)
        if received.topic != SESSIONS.name or session_id is None:
            return
        if isinstance(record, r.TurnInterrupted | r.TurnCompleted | r.TurnFailed):
            self._note_end(received, record)
        if isinstance(record, r.SessionOpened):
            begun = _AuditedTurns(goes_on=not ends_with_run(record))
            self._sessions.setdefault(session_id, begun)
        elif (session := self._session(session_id, received.partition)) is not None:
            self._event(session, received)

    def settle(self) -> None:
        """Judge answers and deadlines. `sessions` was read to behind every answer."""
        answers = self._answers
        self._answers = []
        for place, session_id, turn_id in answers:
            if (session_id, turn_id) not in self._completed:
                self._judge_answer(place, session_id, turn_id)
        for session_id, session in self._sessions.items():
            for turn_id, turn in session.turns.items():
                self._judge_wait(turn, f"turn {turn_id} of session {session_id}")

    def end(self) -> None:
        """Judge the turns that are still open: the run is finished, so none of them ends any more.

        Turns in sessions that go on after the run are left out.
        """
        for session_id, session in self._sessions.items():
            if session.goes_on:
                continue
            for turn_id, turn in session.turns.items():
                if not turn.over:
                    turn.over = True
                    what = f"turn {turn_id} of session {session_id}"
                    self.findings.add(turn.place, f"{what} has no end, and the run is finished")

    def _session(self, session_id: str, partition: int) -> _AuditedTurns | None:
        """Return the session, or None if it is over or was never opened."""
        session = self._sessions.get(session_id)
        if session is not None or session_id in self._ended:
            return session
        if self._kept.whole((SESSIONS.name, partition)):
            return None
        return self._sessions.setdefault(session_id, _AuditedTurns(whole=False))

    def _event(self, session: _AuditedTurns, received: Received) -> None:
        record = received.record
        match record:
            case r.TurnStarted():
                self._start(session, received, record)
            case r.TurnPlayedBack():  # its answer was copied, so no worker completes it
                self._completed.add((record.session_id, record.turn_id))
            case r.SessionClosed():
                session.closed = True
                self.findings.checked += sum(turn.end() for turn in session.turns.values())
            case r.SessionFinalized():
                self._ended.add(record.session_id)
                self._sessions.pop(record.session_id, None)
            case r.TurnDispatched() | r.TurnFailed() | r.TurnCancelled():
                self._turn_event(session, received, record)
            case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
                self._turn_event(session, received, record)

    def _start(self, session: _AuditedTurns, received: Received, record: r.TurnStarted) -> None:
        if record.turn_id in session.turns:
            detail = f"turn {record.turn_id} of session {record.session_id} is started again"
            self.findings.add(place_of(received), detail)
        elif not session.closed:
            worked_ms = self._owners.worked_ms(received.partition)
            due_ms = worked_ms + record.deadline_ms - record.at_ms
            session.turns[record.turn_id] = _AuditedTurn(place=place_of(received), due_ms=due_ms)

    def _turn_event(
        self,
        session: _AuditedTurns,
        received: Received,
        record: r.TurnDispatched | r.TurnFailed | r.TurnCancelled | SampledOutput,
    ) -> None:
        turn = session.turns.get(record.turn_id)
        if turn is None:
            if not session.whole and record.turn_id not in session.unknown:
                session.unknown.add(record.turn_id)
                self.findings.not_checkable += 1
            if not session.whole and isinstance(record, r.TurnCompleted):
                self._completed.add((record.session_id, record.turn_id))
            return
        match record:
            case r.TurnDispatched():
                turn.dispatched(record)
            case r.TurnFailed():
                self.findings.checked += turn.failed(record)
            case r.TurnCancelled():
                self.findings.checked += turn.end()
            case _ if turn.sampled(record) and turn.over:
                self.findings.checked += 1
                self._completed.add((record.session_id, record.turn_id))

    def _note_end(
        self, received: Received, record: r.TurnInterrupted | r.TurnCompleted | r.TurnFailed
    ) -> None:
        if isinstance(record, r.TurnFailed) and record.epoch is not None:
            return  # the manager's
        sampler = sampler_of(record)
        dispatch = record.session_id, record.turn_id, sampler
        if dispatch in self._dispatches:
            what = f"{type(record).__name__} ends dispatch {sampler[0]} of turn {record.turn_id}"
            detail = f"{what} of session {record.session_id} by worker {sampler[1]} once more"
            self.findings.add(place_of(received), detail)
        self._dispatches.add(dispatch)

    def _judge_answer(self, place: LogPlace, session_id: str, turn_id: str) -> None:
        number = partition_of(session_name(session_id), self._partitions)
        session = self._sessions.get(session_id)
        if self._kept.whole((SESSIONS.name, number)) or (session is not None and session.whole):
            what = f"the answer to turn {turn_id} of session {session_id}"
            self.findings.add(place, f"{what} has no accepted TurnCompleted on {SESSIONS.name}")
        else:
            self.findings.not_checkable += 1

    def _judge_wait(self, turn: _AuditedTurn, what: str) -> None:
        waited_ms = self._owners.worked_ms(turn.place.partition) - turn.due_ms
        if not turn.over and not turn.late and waited_ms > LATE_MS:
            turn.late = True
            detail = f"{what} has no end {waited_ms / 1000:.0f} s after its deadline"
            self.findings.add(turn.place, detail)
