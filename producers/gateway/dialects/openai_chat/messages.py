"""An OpenAI chat request's messages in canonical form. Pure.

Known members are kept, null and unknown members are dropped, and text parts are joined. Input that
a text model cannot read (images, audio, files) is refused with 400, never dropped. A tool's answer
is also refused if its call is not in the assistant message before it. Answers are put in call
order.
"""

from collections.abc import Callable, Mapping

import orjson

from seamlessflow.producers.gateway.dialects.canonical import canonical_json, tool_call
from seamlessflow.producers.gateway.dialects.history import (
    HistoryMessage,
    Wording,
    is_split,
    joined,
    places_by_call,
)
from seamlessflow.producers.gateway.errors import bad

_PLAIN_ROLES = ("user", "assistant", "system")
_RESULTS = Wording(
    "messages",
    "Duplicate value for 'tool_call_id' of {call!r}.",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {call}",
)


def canonical_messages(messages: object) -> tuple[bytes, ...]:
    """Return each message as canonical JSON. Raises `ApiError` that names the wrong member."""
    if not isinstance(messages, list) or not messages:
        raise bad("messages", "messages must be a list of at least one message")
    if all(map(_is_plain, messages)):  # no calls and no results, which might change places
        return tuple(map(_sorted_json, messages))
    read = [
        _sorted_json(message)
        if _is_plain(message)
        else canonical_json(_message(f"messages[{n}]", message), f"messages[{n}]")
        for n, message in enumerate(messages)
    ]
    if is_split(messages):
        messages = joined([orjson.loads(message) for message in read])
        read = [canonical_json(message, "messages") for message in messages]
    _refuse_lone_answers(messages)
    return tuple(read[place] for place in places_by_call(messages, _RESULTS))


def _refuse_lone_answers(messages: list[HistoryMessage]) -> None:
    """Raise `ApiError` for a tool's answer whose call is not in the assistant message before."""
    calls: set[str] = set()
    for n, message in enumerate(messages):
        if message["role"] == "assistant":
            calls = {call["id"] for call in message.get("tool_calls") or ()}
        elif message["role"] == "tool" and message["tool_call_id"] not in calls:
            where = f"messages[{n}].tool_call_id"
            call = message["tool_call_id"]
            raise bad(where, f"{where} is {call!r}, no call of the assistant message before it")


# Most messages take this way, which saves reading each member.
def _is_plain(message: object) -> bool:
    """Return whether a message is already canonical, apart from the order of its two members."""
    return (
        type(message) is dict
        and len(message) == 2
        and message.get("role") in _PLAIN_ROLES
        and type(message.get("content")) is str
    )


def _sorted_json(message: object) -> bytes:
    return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def _message(place: str, message: object) -> dict[str, object]:
    if not isinstance(message, dict):
        raise bad(place, f"{place} must be an object")
    role = message.get("role")
    read = _ROLES.get(role) if isinstance(role, str) else None
    if read is None:
        raise bad(f"{place}.role", f"{place}.role must be one of {', '.join(_ROLES)}")
    return read(place, message)


def _instruction(place: str, message: HistoryMessage) -> dict[str, object]:
    return _named(place, message, {"role": "system", "content": _content(place, message)})


def _user(place: str, message: HistoryMessage) -> dict[str, object]:
    return _named(place, message, {"role": "user", "content": _content(place, message)})


def _tool_answer(place: str, message: HistoryMessage) -> dict[str, object]:
    call = message.get("tool_call_id")
    if not isinstance(call, str) or not call:
        raise bad(f"{place}.tool_call_id", f"{place}.tool_call_id must name a tool call")
    content = "" if message.get("content") is None else _content(place, message)
    return _named(place, message, {"role": "tool", "content": content, "tool_call_id": call})


def _assistant(place: str, message: HistoryMessage) -> dict[str, object]:
    if message.get("function_call") is not None:
        raise bad(f"{place}.function_call", "function_call is not supported: use tool_calls")
    read: dict[str, object] = {"role": "assistant"}
    calls = message.get("tool_calls")
    if calls:
        read["tool_calls"] = _tool_calls(f"{place}.tool_calls", calls)
    if message.get("content") is not None:
        read["content"] = _content(place, message)
    elif not calls:
        read["content"] = ""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        read["reasoning_content"] = reasoning
    return _named(place, message, read)


_ROLES: Mapping[str, Callable[[str, HistoryMessage], dict[str, object]]] = {
    "user": _user,
    "assistant": _assistant,
    "tool": _tool_answer,
    "system": _instruction,
    "developer": _instruction,
}


def _named(place: str, message: HistoryMessage, read: dict[str, object]) -> dict[str, object]:
    name = message.get("name")
    if name is None:
        return read
    if not isinstance(name, str):
        raise bad(f"{place}.name", f"{place}.name must be text")
    return read | {"name": name}


def _content(place: str, message: HistoryMessage) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad(f"{place}.content", f"{place}.content must be text or a list of parts")
    return "".join(_part(f"{place}.content[{n}]", part) for n, part in enumerate(content))


def _part(place: str, part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "text" | "refusal"}:
            raise bad(place, f"{place} must hold text")
        case {"type": str(kind)}:
            raise bad(place, f"{place} is of type {kind!r}: this model takes text only")
    raise bad(place, f"{place} must be an object with a type")


def _tool_calls(place: str, calls: object) -> list[dict[str, object]]:
    if not isinstance(calls, list):
        raise bad(place, f"{place} must be a list")
    return [_tool_call(f"{place}[{n}]", call) for n, call in enumerate(calls)]


def _tool_call(place: str, call: object) -> dict[str, object]:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return tool_call(call_id, name, arguments)
    raise bad(place, f"{place} must have an id and a function with name and arguments as text")
