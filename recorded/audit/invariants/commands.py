"""Check that every acknowledged command has its event on `sessions`. Pure.

For a gateway, a `CommandAnswered` on `replies` is the acknowledgement. To Kafka, the manager
acknowledges a command by committing an offset on `requests` behind it. An event counts by its
command's id, and only under the epoch of its partition's owner.

Three kinds of commands leave no event. Questions (`CountTokens`, `DescribeSession`) leave none. A
call that repeats an earlier one leaves none: the earlier call's event must be there instead. A
`CancelTurn` that comes too late leaves none and gets no answer, so it is not checked.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.invariants.evidence import Kept
from seamlessflow.recorded.audit.invariants.ledger import Findings, LogPlace, Seen, place_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.topics import REQUESTS, SESSIONS

AuditedCommand = r.OpenSession | r.RequestTurn | r.AssignReward | r.CloseSession
CommandFields = tuple[object, ...]


class _Command(NamedTuple):
    """A command without an event so far."""

    place: LogPlace
    at_ms: int
    kind: str
    session_id: str
    repeats: CommandFields | None
    """Call that has the event if this command repeats it; without the session."""


class _Answer(NamedTuple):
    """An acknowledgement on `replies`."""

    place: LogPlace
    command_id: str
    session_id: str


class CommandsCheck:
    """Fold over `requests`, `sessions` and `replies`."""

    def __init__(self, kept: Kept) -> None:
        self.findings = Findings("commands")
        self._kept = kept
        self._open: dict[str, _Command] = {}
        self._answers: list[_Answer] = []
        self._carried_out = Seen()
        """Ids of three kinds: commands with an event, questions, and repeats that were answered."""
        self._calls = Seen()
        """Calls that opened, rewarded or closed a session, each with the session's id and name."""

    @property
    def open(self) -> int:
        """Count of commands that have neither an event nor an acknowledgement."""
        return len(self._open)

    def apply(self, received: Received) -> None:
        """Fold in a record; only events that count are passed in."""
        record = received.record
        match record:
            case r.CountTokens() | r.DescribeSession():
                self._carried_out.add(record.command_id)
            case r.OpenSession() | r.RequestTurn() | r.AssignReward() | r.CloseSession():
                self._ask(received, record)
            case r.CommandAnswered():
                answer = _Answer(place_of(received), record.command_id, record.session_id)
                self._answers.append(answer)
            case _ if received.topic == SESSIONS.name:
                self._carry_out(record)

    def settle(self, committed: Mapping[int, int]) -> None:
        """Judge what is acknowledged. `sessions` was read to behind every acknowledgement.

        `committed`: by partition, the offset on `requests` that the managers committed.
        """
        answers = self._answers
        self._answers = []
        for answer in answers:
            if answer.command_id not in self._carried_out:
                self._judge_answer(answer)
        for command_id, command in list(self._open.items()):
            if command.place.offset < committed.get(command.place.partition, 0):
                shown = "its offset is committed"
                self._judge(command_id, command, command.place, command.session_id, shown)

    def _ask(self, received: Received, command: AuditedCommand) -> None:
        if command.command_id in self._carried_out:
            self.findings.checked += 1
            return
        self._open[command.command_id] = _Command(
            place_of(received),
            received.timestamp_ms,
            type(command).__name__,
            command.session_id,
            _repeated_by(command),
        )

    def _carry_out(self, event: r.Record) -> None:
        for call in _calls_of(event):
            self._calls.add(call)
        command_id = getattr(event, "command_id", None)
        if command_id is None or command_id in self._carried_out:
            return
        self._carried_out.add(command_id)
        if self._open.pop(command_id, None) is not None:
            self.findings.checked += 1

    def _judge_answer(self, answer: _Answer) -> None:
        command = self._open.get(answer.command_id)
        if command is not None:
            shown = f"{answer.place} answers it"
            self._judge(answer.command_id, command, answer.place, answer.session_id, shown)
        elif self._kept.cut_anywhere(REQUESTS.name):
            self.findings.not_checkable += 1
        else:
            detail = f"answers command {answer.command_id}, which is not on {REQUESTS.name}"
            self.findings.add(answer.place, detail)

    def _judge(
        self, command_id: str, command: _Command, place: LogPlace, session_id: str, shown: str
    ) -> None:
        """Judge an acknowledged command without an event."""
        del self._open[command_id]
        self._carried_out.add(command_id)  # later copies of the answer say the same
        repeats = command.repeats
        if repeats is not None and (session_id, *repeats) in self._calls:
            self.findings.checked += 1
        elif not self._kept.holds(SESSIONS.name, command.at_ms, command.place.partition):
            self.findings.not_checkable += 1
        else:
            what = f"{command.kind} {command_id} of session {session_id} at {command.place}"
            self.findings.add(place, f"{what} has no event on {SESSIONS.name}, but {shown}")


def _repeated_by(command: AuditedCommand) -> CommandFields | None:
    """Return the call that a command without an event may repeat, or None if it cannot."""
    key = getattr(command, "idempotency_key", None)
    match command:
        case r.OpenSession():
            return None if key is None else ("open", key)
        case r.AssignReward():
            return ("reward", key, *_content(command.reward))
        case r.CloseSession():
            return ("close", key)
    return None


def _calls_of(event: r.Record) -> Iterable[CommandFields]:
    """Return the calls that an event may come from, each by its session's id and name."""
    match event:
        case r.SessionOpened(idempotency_key=key):
            calls: tuple[CommandFields, ...] = (("open", key),)
        case r.RewardAssigned(idempotency_key=key, reward=reward):
            calls = (("reward", key, *_content(reward)), ("reward", None, *_content(reward)))
        case r.SessionClosed(idempotency_key=key, command_id=str()):
            calls = (("close", key), ("close", None))
        case _:
            return
    session_id: str = event.session_id
    for call in calls:
        yield (session_id, *call)
        yield (session_name(session_id), *call)


def _content(reward: r.Reward) -> CommandFields:
    return reward.name, reward.value, reward.scope, reward.turn_id, reward.source
