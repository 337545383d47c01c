"""Conversations of an agent with the manager; answers are given, not sampled."""

from dataclasses import replace
from typing import Any

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.schemas.identity import forked_turn_id, tool_call_id
from seamlessflow.schemas.records import ForkedPrefix, Record
from seamlessflow.schemas.topics import SessionCommand
from tests.builders.records.commands import open_session, request_turn
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import completed
from tests.builders.trajectories.decisions import WEIGHTS, context, fleet_with
from tests.builders.trajectories.session_builder import SessionBuilder

ASKED = (message("system", "be brief"), message("user", "sum up the notes"))


class Conversation(SessionBuilder):
    """A session whose events follow from commands, as a manager makes them."""

    def __init__(
        self, session_id: str = "s", strictness: Strictness = "arguments", **opening: Any
    ) -> None:
        super().__init__(strictness)
        self.session_id = session_id
        self._fleet = fleet_with("w", weights=replace(WEIGHTS, strictness=strictness))
        self.carry_out(open_session(session_id=session_id, **opening))

    def carry_out(self, command: SessionCommand, **around: Any) -> list[Record]:
        """Decide a command, apply its events and return them."""
        session = self.session if self.accepted else None
        events = decide(session, command, self._context(**around)).events
        self.apply(*events)
        return events

    def ask(self, turn_id: str, *messages: bytes, **more: Any) -> list[Record]:
        """Return the events of a request of the agent."""
        command = request_turn(turn_id, session_id=self.session_id, messages=messages, **more)
        return self.carry_out(command)

    def answer(self, turn_id: str, tokens: bytes, said: bytes, **more: Any) -> bytes:
        """Complete a turn with these tokens; return the message, as the agent got it."""
        started = self.turn(turn_id).started
        end = completed(tokens, turn_id, session_id=self.session_id, message=said, **more)
        length, confirmed = started.prompt_length, started.prompt_hash
        self.apply(replace(end, prompt_length=length, prompt_hash=confirmed))
        return said

    def copied(self, number: int) -> str:
        """Return the id that the n-th copied turn has here."""
        return forked_turn_id(self.session_id, number)

    def _context(self, **around: Any) -> Context:
        return context(self._fleet, **around)


def calling(turn_id: str, name: str = "read") -> bytes:
    """Return the answer of a turn that calls one tool."""
    function = {"name": name, "arguments": "{}"}
    call = {"id": tool_call_id(turn_id, 0), "type": "function", "function": function}
    return message("assistant", None, tool_calls=[call])


def result(turn_id: str, text: str = "notes") -> bytes:
    """Return the result of that call."""
    return message("tool", text, tool_call_id=tool_call_id(turn_id, 0))


def recorded() -> Conversation:
    """Return a session of three turns: two that call a tool, and one that answers."""
    made = Conversation("recorded")
    made.ask("a", *ASKED)
    first = made.answer("a", ids(10, 11, 0), calling("a"), finish_reason="tool_calls")
    made.ask("b", *ASKED, first, result("a"))
    second = made.answer("b", ids(20, 21, 0), calling("b"), finish_reason="tool_calls")
    made.ask("c", *ASKED, first, result("a"), second, result("b", "more"))
    made.answer("c", ids(30, 31, 0), message("assistant", "done"))
    return made


def recorded_prefix(turn_id: str = "c", **how: Any) -> ForkedPrefix:
    """Return the beginning of the recorded session up to this turn; `how`: see `forked_prefix`."""
    return forked_prefix(recorded().session, turn_id, RecordedOn(5), **how)


def forked(turn_id: str = "c", **how: Any) -> Conversation:
    """Return a session that begins so."""
    return Conversation("fork", fork=recorded_prefix(turn_id, **how))
