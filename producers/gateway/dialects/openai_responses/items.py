"""Items of the Responses protocol from what was sampled, and back. Pure.

What goes out as items comes back as the very message that was sampled, spelling included: an item's
id names its turn, and where a custom or shell call was not spelt as expected its id carries the
spelling. Reasoning goes out as text, and where it is asked for as `encrypted_content` as well,
which is that text, readable by anybody.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from producers.gateway.dialects.openai_responses.tools import LOCAL_SHELL, Offered, function_name
from schemas.identity import turn_of_tool_call

Item = dict[str, Any]
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "local_shell_call": "lsh",
}
_LIMITS = (("working_directory", str), ("timeout_ms", int))
_OWN_REASONING = "seamlessflow."
_SPELT = "~"


def item_id(kind: str, turn_id: str, index: int) -> str:
    """Id of a turn's n-th item."""
    return f"{_PREFIXES[kind]}_{turn_id}_{index}"


def turn_of_item(item: Mapping[str, Any]) -> str | None:
    """The turn that an item came from, if it is one of ours and says so."""
    named = item.get("call_id")
    turn = turn_of_tool_call(named) if isinstance(named, str) else None
    item_name = item.get("id")
    if turn is not None or not isinstance(item_name, str):
        return turn
    prefix, _, rest = item_name.partition(_SPELT)[0].partition("_")
    turn_id, _, index = rest.rpartition("_")
    return turn_id if turn_id and index.isdigit() and prefix in _PREFIXES.values() else None


def reasoning_item(name: str, text: str, status: str, encrypted: bool) -> Item:
    """What the model thought."""
    item: Item = {"id": name, "type": "reasoning", "summary": [], "status": status}
    item["content"] = [{"type": "reasoning_text", "text": text}]
    if encrypted:
        item["encrypted_content"] = _OWN_REASONING + _packed(text)
    return item


def reasoning_text(item: Mapping[str, Any]) -> str:
    """What the model thought; empty where only another server can read it."""
    encrypted = item.get("encrypted_content")
    if isinstance(encrypted, str) and encrypted.startswith(_OWN_REASONING):
        own = _unpacked(encrypted.removeprefix(_OWN_REASONING))
        if own is not None:
            return own
    return _texts(item.get("content")) or ("" if encrypted else _texts(item.get("summary")))


def text_part(text: str, logprobs: Sequence[Item] = ()) -> Item:
    """The one part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def message_item(name: str, content: Sequence[Item], status: str) -> Item:
    """What the model said."""
    return {
        "id": name,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def call_item(
    turn_id: str,
    index: int,
    call: Mapping[str, Any],
    offered: Mapping[str, Offered],
    status: str,
) -> Item:
    """A sampled tool call under the name, and in the form, in which the agent offered the tool."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    tool = offered.get(name, Offered("function", name))
    action = _action(arguments) if tool.kind == LOCAL_SHELL else None
    shared = {"call_id": call["id"], "status": status}
    if tool.namespace is not None:
        shared["namespace"] = tool.namespace
    if tool.kind == "custom":
        text = _input(arguments)
        own_id = _spelling_id("custom_tool_call", turn_id, index, arguments, _wrapped(text))
        return {"id": own_id, "type": "custom_tool_call", "name": tool.name, "input": text} | shared
    if action is not None:
        own_id = _spelling_id("local_shell_call", turn_id, index, arguments, _shell(action))
        return {"id": own_id, "type": "local_shell_call", "action": action} | shared
    own_id = item_id("function_call", turn_id, index)
    return {
        "id": own_id,
        "type": "function_call",
        "name": tool.name,
        "arguments": arguments,
    } | shared


def custom_call(item: Mapping[str, Any], text: str) -> dict[str, object]:
    """The sampled call that a `custom_tool_call` with this input is."""
    spelt = _spelling(item)
    arguments = spelt if spelt is not None and _input(spelt) == text else _wrapped(text)
    name = function_name(str(item["name"]), item.get("namespace"))
    return tool_call(str(item["call_id"]), name, arguments)


def shell_call(item: Mapping[str, Any], action: Mapping[str, Any]) -> dict[str, object]:
    """The sampled call that a `local_shell_call` is."""
    given = {name: value for name, value in action.items() if value is not None}
    spelt = _spelling(item)
    arguments = spelt if spelt is not None and _action(spelt) == given else _shell(given)
    return tool_call(str(item["call_id"]), LOCAL_SHELL, arguments)


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, object]:
    """A call in canonical form."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _input(arguments: str) -> str:
    """The input of a custom tool; all of the arguments where they hold none, for the tool to
    complain about."""
    match _object(arguments):
        case {"input": str(text)}:
            return text
    return arguments


def _wrapped(text: str) -> str:
    """Spelt as models are taught to."""
    return json.dumps({"input": text}, ensure_ascii=False)


def _action(arguments: str) -> Item | None:
    """What the local shell is to do; none where the arguments do not say it."""
    match _object(arguments):
        case {"command": list(command), **rest} if all(isinstance(word, str) for word in command):
            known = {name: rest[name] for name, kind in _LIMITS if isinstance(rest.get(name), kind)}
            return {"type": "exec", "command": command, "env": {}} | known
    return None


def _shell(action: Mapping[str, Any]) -> str:
    given = {n: value for n, value in action.items() if n != "type" and value not in (None, {})}
    return json.dumps(given, ensure_ascii=False)


def _spelling_id(kind: str, turn_id: str, index: int, arguments: str, expected: str) -> str:
    name = item_id(kind, turn_id, index)
    return name if arguments == expected else name + _SPELT + _packed(arguments)


def _spelling(item: Mapping[str, Any]) -> str | None:
    _, spelt, packed = str(item.get("id")).partition(_SPELT)
    return _unpacked(packed) if spelt else None


def _object(text: str) -> Item:
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def _texts(parts: object) -> str:
    listed = parts if isinstance(parts, list) else []
    return "".join(part["text"] for part in listed if _holds_text(part))


def _holds_text(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _packed(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


def _unpacked(packed: str) -> str | None:
    try:
        return urlsafe_b64decode(packed).decode()
    except ValueError:
        return None
