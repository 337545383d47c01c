"""Turns that an agent sends back as several messages: one for each call, or for text and calls.

The gateway wrote the turn into the ids of its calls, so messages whose calls have one turn are what
one turn sampled, whatever results stand between them. They are joined again. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.schemas.identity import turn_of_tool_call

Message = Mapping[str, Any]
_TEXTS = ("content", "reasoning_content")


def is_split(messages: Sequence[Message]) -> bool:
    """Return whether two messages of the assistant, one behind the other, are of one turn."""
    before = None
    for message in messages:
        if message.get("role") == "assistant":
            turn = _turn(message)
            if turn is not None and turn == before:
                return True
            before = turn
        elif message.get("role") != "tool":
            before = None
    return False


def joined(messages: Sequence[Message]) -> list[Message]:
    """Return canonical messages with those of one turn as one, in the place of the first."""
    whole: list[Message] = []
    begun: int | None = None
    for message in messages:
        if message.get("role") == "assistant":
            turn = _turn(message)
            if begun is not None and turn is not None and turn == _turn(whole[begun]):
                whole[begun] = _together(whole[begun], message)
                continue
            begun = len(whole)
        elif message.get("role") != "tool":
            begun = None
        whole.append(message)
    return whole


def _turn(message: Message) -> str | None:
    """Return the turn of all calls of a message, or None."""
    turns = {turn_of_tool_call(str(call["id"])) for call in message.get("tool_calls") or ()}
    return turns.pop() if len(turns) == 1 else None


def _together(first: Message, second: Message) -> Message:
    calls = {call["id"]: call for call in (*first["tool_calls"], *second["tool_calls"])}
    texts = {
        name: first.get(name) or second.get(name)
        for name in _TEXTS
        if first.get(name) or second.get(name)
    }
    return {**first, **texts, "tool_calls": list(calls.values())}
