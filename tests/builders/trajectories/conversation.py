"""Conversations of an agent with the manager; answers are given, not sampled."""

from dataclasses import replace
from typing import Any

from consumers.trajectories.decisions.context import Context
from consumers.trajectories.decisions.decide import decide
from consumers.trajectories.sessions.addressing import Command
from schemas import records as r
from schemas.identity import tool_call_id
from schemas.records import Record
from tests.builders.records.commands import GATEWAY, open_session, request_turn
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import completed
from tests.builders.trajectories.decisions import context
from tests.builders.trajectories.session_builder import SessionBuilder

ASKED = (message("system", "be brief"), message("user", "sum up the notes"))


class Conversation(SessionBuilder):
    """A session whose events follow from commands, as a manager makes them."""

    def __init__(self, session_id: str = "s", **opening: Any) -> None:
        super().__init__()
        self.session_id = session_id
        self.carry_out(open_session(session_id=session_id, **opening))

    def carry_out(self, command: Command, **around: Any) -> list[Record]:
        """Decide a command, apply its events and return them."""
        known = self.session if self.accepted else None
        events = decide(known, command, self._context(**around)).events
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

    def _context(self, **around: Any) -> Context:
        return context(**around)


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


def opening(fork: r.ForkedPrefix, session_id: str = "fork", **more: Any) -> r.OpenSession:
    """Return the command that opens a session with this beginning."""
    return open_session(session_id=session_id, fork=fork, reply=GATEWAY, **more)
