"""A conversation from elsewhere, in OpenAI's chat form; and call logs as conversations. Pure.

A call log repeats the history in each call. So if a call's history goes on from an earlier call in
its trace, both are one conversation: the last call's. A history may have an answer that no logged
call gave. That answer is read and not learned: it has `weight` 0, as in a file for fine-tuning.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

ChatMessage = Mapping[str, Any]


class NotReadable(ValueError):
    """A part of a file in another form than the rest, or without a conversation."""


@dataclass(frozen=True, slots=True)
class ForeignConversation:
    """Messages as the file has them, and where they come from."""

    messages: Sequence[ChatMessage]
    source: str
    """Tool that wrote the file, for example `claude-code`."""
    tools: Sequence[Mapping[str, Any]] = ()
    session_id: str = ""
    """Id that the tool gave it."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call to a model: what it was sent, and what it answered."""

    trace: str
    sent: Sequence[ChatMessage]
    answer: ChatMessage
    tools: Sequence[Mapping[str, Any]] = ()
    model: str = ""


def conversations_of_calls(
    calls: Iterable[LoggedCall], source: str
) -> Iterator[ForeignConversation]:
    """Yield a log's conversations, each trace's in call order."""
    traces: defaultdict[str, list[LoggedCall]] = defaultdict(list)
    for call in calls:
        traces[call.trace].append(call)
    for trace, logged in traces.items():
        answers = {_key(call.answer) for call in logged}
        histories = [[*map(_key, call.sent), _key(call.answer)] for call in logged]
        for number, call in enumerate(logged):
            history = histories[number]
            later = (other for place, other in enumerate(histories) if place != number)
            if any(_goes_on(history, other) for other in later):
                continue
            messages = [_weighed(message, answers) for message in call.sent]
            yield ForeignConversation(
                [*messages, call.answer], source, call.tools, trace, call.model
            )


def json_value(value: object) -> object:
    """Return the value in a text that is a JSON object or list; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def text_of(arguments: object) -> str:
    """Return a call's arguments as text, as chat messages have them."""
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()


def _goes_on(history: Sequence[bytes], other: Sequence[bytes]) -> bool:
    return len(other) > len(history) and list(other[: len(history)]) == list(history)


def _key(message: ChatMessage) -> bytes:
    """Return a key that is equal for messages with the same meaning; empty members do not count."""
    members = {name: value for name, value in message.items() if value not in (None, "", [])}
    return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)


def _weighed(message: ChatMessage, answers: set[bytes]) -> ChatMessage:
    if message.get("role") != "assistant" or _key(message) in answers:
        return message
    return {**message, "weight": 0}
