"""Items in the Responses protocol, made from a sampled message and read back. Pure.

If an agent sends our items back, they give exactly the message that was sampled, in the same
spelling. An item's id names its turn. If a custom or shell call was spelt in an unexpected way, its
id also carries the spelling. Reasoning is sent as text. If the agent asks for it, it is also sent
as `encrypted_content`, which is the same text and not secret.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import tool_call
from seamlessflow.producers.gateway.dialects.openai_responses.tools import (
    LOCAL_SHELL,
    Offered,
    function_name,
)
from seamlessflow.schemas.identity import turn_of_tool_call

ResponseItem = dict[str, Any]
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
    """Return the id of the item at this index in a turn's answer."""
    return f"{_PREFIXES[kind]}_{turn_id}_{index}"


def turn_of_item(item: Mapping[str, Any]) -> str | None:
    """Return the turn that sampled an item, or None if the gateway did not make the item's id."""
    # A call's `call_id` names its turn; agents need not send the item's own id.
    named = item.get("call_id")
    turn = turn_of_tool_call(named) if isinstance(named, str) else None
    item_name = item.get("id")
    if turn is not None or not isinstance(item_name, str):
        return turn
    prefix, _, rest = item_name.partition(_SPELT)[0].partition("_")
    turn_id, _, index = rest.rpartition("_")
    return turn_id if turn_id and index.isdigit() and prefix in _PREFIXES.values() else None


def reasoning_item(name: str, text: str, status: str, encrypted: bool) -> ResponseItem:
    """Return an item with reasoning."""
    item: ResponseItem = {"id": name, "type": "reasoning", "summary": [], "status": status}
    item["content"] = [{"type": "reasoning_text", "text": text}]
    if encrypted:
        item["encrypted_content"] = _OWN_REASONING + _packed(text)
    return item


def reasoning_text(item: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item; empty if only another server can read it."""
    encrypted = item.get("encrypted_content")
    if isinstance(encrypted, str) and encrypted.startswith(_OWN_REASONING):
        unpacked = _unpacked(encrypted.removeprefix(_OWN_REASONING))
        if unpacked is not None:
            return unpacked
    return _texts(item.get("content")) or ("" if encrypted else _texts(item.get("summary")))


def text_part(text: str, logprobs: Sequence[ResponseItem] = ()) -> ResponseItem:
    """Return a message's only part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def message_item(name: str, content: Sequence[ResponseItem], status: str) -> ResponseItem:
    """Return an item with a message."""
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
) -> ResponseItem:
    """Return a sampled call as an item, with the name and form that its tool was offered with."""
    name = call["function"]["name"]
    arguments = call["function"]["arguments"]
    # A model may call a tool that was never offered; the agent gets it as a function.
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
    """Return the call that was sampled for a `custom_tool_call` with this input."""
    spelt = _spelling(item)
    # The spelling counts only if the agent did not change the input.
    arguments = spelt if spelt is not None and _input(spelt) == text else _wrapped(text)
    name = function_name(str(item["name"]), item.get("namespace"))
    return tool_call(str(item["call_id"]), name, arguments)


def shell_call(item: Mapping[str, Any], action: Mapping[str, Any]) -> dict[str, object]:
    """Return the call that was sampled for a `local_shell_call`."""
    fields = {name: value for name, value in action.items() if value is not None}
    spelt = _spelling(item)
    arguments = spelt if spelt is not None and _action(spelt) == fields else _shell(fields)
    return tool_call(str(item["call_id"]), LOCAL_SHELL, arguments)


def _input(arguments: str) -> str:
    """Return a custom tool's input.

    If the arguments have no input, they are returned unchanged: the tool reports the error.
    """
    match _object(arguments):
        case {"input": str(text)}:
            return text
    return arguments


def _wrapped(text: str) -> str:
    """Return arguments with this input, in the spelling that models learn."""
    return json.dumps({"input": text}, ensure_ascii=False)


def _action(arguments: str) -> ResponseItem | None:
    """Return a local shell call's action, or None if the arguments have no command."""
    match _object(arguments):
        case {"command": list(command), **rest} if all(isinstance(word, str) for word in command):
            limits = {
                name: rest[name] for name, kind in _LIMITS if isinstance(rest.get(name), kind)
            }
            return {"type": "exec", "command": command, "env": {}} | limits
    return None


def _shell(action: Mapping[str, Any]) -> str:
    fields = {n: value for n, value in action.items() if n != "type" and value not in (None, {})}
    return json.dumps(fields, ensure_ascii=False)


def _spelling_id(kind: str, turn_id: str, index: int, arguments: str, expected: str) -> str:
    name = item_id(kind, turn_id, index)
    return name if arguments == expected else name + _SPELT + _packed(arguments)


def _spelling(item: Mapping[str, Any]) -> str | None:
    _, spelt, packed = str(item.get("id")).partition(_SPELT)
    return _unpacked(packed) if spelt else None


def _object(text: str) -> ResponseItem:
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
