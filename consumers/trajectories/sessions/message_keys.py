"""Keys of messages and histories: equal keys mean that they count as the same.

A history's key is chained: first its shape's key (everything but the messages), then each
message's. Keys leave out tool-call ids; matching uses those to distinguish turns with equal
messages.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import orjson
import xxhash

from seamlessflow.schemas.identity import turn_of_tool_call

Strictness = Literal["exact", "arguments", "content", "ids"]

KEYS_KEPT = 65_536
"""Number of keys kept: each turn repeats its history, and reading JSON costs the most."""

# Keyed by the message's xxh3, which is several times faster than Python's hash for bytes. This way
# the cache does not hold the messages themselves.
_keys: OrderedDict[tuple[bytes, Strictness], bytes] = OrderedDict()

_EXACT = 2**53
"""Every integer below it is exactly a double."""

# A canonical message without any of these is already in its comparable form.
_NEEDS_READING = (b'"tool_call', b'"reasoning_content"', b'"content":null')
_OF_THE_ASSISTANT = b'"role":"assistant"'


def chained(history_key: bytes, message_key: bytes) -> bytes:
    """Return the key for a history with one more message."""
    return xxhash.xxh3_128_digest(history_key + message_key)


def shape_key(*parts: bytes | str | None) -> bytes:
    """Return the key for whatever shapes a prompt besides messages (policy, tokenizer, tools)."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return xxhash.xxh3_128_digest(
        b"".join(b"-" if part is None else b"%d:%b" % (len(part), part) for part in encoded)
    )


def message_key(message: bytes, strictness: Strictness) -> bytes:
    """Return the key of one message in canonical JSON.

    - `exact` compares everything but ids.
    - `arguments` compares a tool call's arguments as JSON values. It ignores what many agents drop
      or add: reasoning, text beside calls, an assistant's name, white space around answers.
    - `content` compares only role and content.
    - `ids` compares only ids if the gateway made the ids of all a message's calls. Some agents
      complete the arguments that they send back. Other messages are compared as by `arguments`.
    """
    spelling = xxhash.xxh3_128_digest(message)
    key = _keys.get((spelling, strictness))
    if key is None:
        plain = _is_plain(message, strictness)
        key = spelling if plain else _read_key(message, strictness)
        _keys[spelling, strictness] = key
        if len(_keys) > KEYS_KEPT:
            _keys.popitem(last=False)
    return key


def _is_plain(message: bytes, strictness: Strictness) -> bool:
    """Return whether a message is already in its comparable form."""
    if strictness == "content" or any(mark in message for mark in _NEEDS_READING):
        return False
    return strictness == "exact" or _OF_THE_ASSISTANT not in message


def _read_key(message: bytes, strictness: Strictness) -> bytes:
    read = orjson.loads(message)
    if strictness != "exact" and read.get("role") == "assistant":
        read = _as_shown(read, strictness)
    return xxhash.xxh3_128_digest(_COMPARABLE[strictness](read))


def _as_shown(answer: dict[str, Any], strictness: Strictness) -> dict[str, Any]:
    """Return an answer without parts that no template shows, and without text beside calls.

    If two turns have the same calls, the calls' ids tell which turn it is.
    """
    answer.pop("name", None)
    if answer.get("tool_calls") and strictness != "content":
        answer["content"] = ""
    elif isinstance(answer.get("content"), str):
        answer["content"] = answer["content"].strip()
    return answer


def _exact(message: dict[str, Any]) -> bytes:
    calls = [call["function"] for call in message.pop("tool_calls", None) or ()]
    message.pop("tool_call_id", None)
    return _canonical(message | ({"tool_calls": calls} if calls else {}))


def _equal_arguments(message: dict[str, Any]) -> bytes:
    message.pop("reasoning_content", None)
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = _read(call["function"].get("arguments"))
    return _exact(message)


def _role_and_content(message: dict[str, Any]) -> bytes:
    return _canonical({"role": message.get("role"), "content": message.get("content")})


def _named_by_calls(message: dict[str, Any]) -> bytes:
    ids = [str(call.get("id", "")) for call in message.get("tool_calls") or ()]
    if ids and all(turn_of_tool_call(public_id) for public_id in ids):
        return _canonical({"role": message.get("role"), "calls": ids})
    return _equal_arguments(message)


def _canonical(message: dict[str, Any]) -> bytes:
    if not message.get("content"):
        message["content"] = ""
    return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def _read(arguments: Any) -> Any:
    """Return arguments as canonical JSON, or unchanged if not JSON or nested too deeply."""
    try:
        read = _numbers_by_value(orjson.loads(arguments))
        return orjson.Fragment(orjson.dumps(read, option=orjson.OPT_SORT_KEYS))
    except (orjson.JSONDecodeError, TypeError, RecursionError):
        return arguments


def _numbers_by_value(value: Any) -> Any:
    """Return the value with one spelling per number: the spelling that JavaScript agents send back.

    For example 1 for 1.0, and the nearest double for a large integer.
    """
    match value:
        case dict():
            return {name: _numbers_by_value(member) for name, member in value.items()}
        case list():
            return [_numbers_by_value(member) for member in value]
        case float() if value.is_integer() and abs(value) < _EXACT:
            return int(value)
        case int() if abs(value) >= _EXACT:
            return float(value)
    return value


_COMPARABLE: Mapping[Strictness, Callable[[dict[str, Any]], bytes]] = {
    "exact": _exact,
    "arguments": _equal_arguments,
    "content": _role_and_content,
    "ids": _named_by_calls,
}
STRICTNESSES: Sequence[Strictness] = tuple(_COMPARABLE)


def any_strictness(_: str) -> Strictness:
    """Return a comparison for log readers, whose tokens and states do not depend on it."""
    return "exact"
