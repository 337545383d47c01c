"""The input of a Responses request as canonical messages. Pure.

The items of one turn (reasoning, messages, calls) become one assistant message, as it was sampled.
Input that a text model cannot read, items of tools that OpenAI's servers run, and an output before
its call are refused with 400, never dropped. Only reasoning that another server encrypted is
dropped, since no process here can read it. Outputs stand in the order of the calls. An item that is
named (`item_reference`) is the manager's to find.
"""

from collections.abc import Callable, Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import canonical_json
from seamlessflow.producers.gateway.dialects.openai_responses.history import Part, ResponsesHistory
from seamlessflow.producers.gateway.dialects.openai_responses.items import (
    custom_call,
    reasoning_text,
    shell_call,
    tool_call,
    turn_of_item,
)
from seamlessflow.producers.gateway.dialects.openai_responses.tools import function_name
from seamlessflow.producers.gateway.dialects.split_turns import joined
from seamlessflow.producers.gateway.dialects.tool_results import Wording, places_by_call
from seamlessflow.producers.gateway.errors import ApiError, bad

_ROLES = {"user": "user", "system": "system", "developer": "system"}
_RESULTS = Wording(
    "input",
    "Duplicate output for call_id {call!r}: each call must have exactly one output.",
    "No tool output found for function call {call}.",
    between=("user", "system"),
)
_TEXT_PARTS = ("input_text", "output_text", "text")
_PARTS: Mapping[str, Part] = {"rs": "reasoning", "msg": "message"}
"""By the prefix of an item's id; all others are calls."""


def canonical_input(value: object, continues: bool = False) -> tuple[bytes, ...]:
    """Return each message as canonical JSON. Raises `ApiError` that names the wrong member.

    `continues`: the input follows a response, whose calls the gateway does not know.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad("input", "input must be text or a list of at least one item")
    history = ResponsesHistory(continues)
    for n, item in enumerate(value):
        _read(f"input[{n}]", item, history)
    messages = joined(history.messages())
    places = places_by_call(messages, _RESULTS)
    return tuple(canonical_json(messages[place], "input") for place in places)


def additional_tools(value: object) -> list[object]:
    """Return the tools that are sent inside the input instead of as a parameter."""
    items = value if isinstance(value, list) else []
    return [tool for item in items if _brings_tools(item) for tool in item["tools"]]


def _read(place: str, item: object, history: ResponsesHistory) -> None:
    if not isinstance(item, dict):
        raise bad(place, f"{place} must be an object")
    kind = item.get("type")
    if kind is None:
        # Its type may be left out of a message, and of an item that is only named.
        kind = "message" if "role" in item else "item_reference" if _only_names(item) else None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        message = f"{place} is of type {kind!r}, which is not supported"
        raise ApiError(400, message, code="unsupported_value", param=f"{place}.type")
    read(place, item, history)


def _message(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    role = item.get("role")
    if role == "assistant":
        content = _content(f"{place}.content", item.get("content"))
        history.assistant_message("message", turn_of_item(item)).texts.append(content)
    elif isinstance(role, str) and role in _ROLES:
        content = _content(f"{place}.content", item.get("content"))
        history.add_message({"role": _ROLES[role], "content": content})
    else:
        where = f"{place}.role"
        raise bad(where, f"{where} must be one of assistant, {', '.join(_ROLES)}")


def _reasoning(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    if text := reasoning_text(item):
        history.assistant_message("reasoning", turn_of_item(item)).reasoning.append(text)


def _function_call(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    name = function_name(_text(place, item, "name"), item.get("namespace"))
    call = tool_call(_text(place, item, "call_id"), name, _text(place, item, "arguments"))
    history.add_call(call, turn_of_item(item))


def _custom_call(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    _text(place, item, "name"), _text(place, item, "call_id")
    call = custom_call(item, _text(place, item, "input"))
    history.add_call(call, turn_of_item(item))


def _shell_call(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    _text(place, item, "call_id")
    action = item.get("action")
    if not isinstance(action, dict):
        raise bad(f"{place}.action", f"{place}.action must be an object")
    history.add_call(shell_call(item, action), turn_of_item(item))


def _output(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    output = item.get("output")
    content = "" if output is None else _content(f"{place}.output", output)
    call = _text(place, item, "call_id")
    if not history.may_have_called(call):
        where = f"{place}.call_id"
        raise bad(where, f"{where} is {call!r}, but no call of that id stands before this output")
    history.add_tool_answer({"role": "tool", "content": content, "tool_call_id": call})


def _shell_output(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    # Agents may send the id of the call as the id of the output.
    named = item if item.get("call_id") is not None else {**item, "call_id": item.get("id")}
    _output(place, named, history)


def _reference(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    name = _text(place, item, "id")
    turn = turn_of_item({"id": name})
    if turn is None:
        where = f"{place}.id"
        raise bad(
            where, f"{where} is {name!r}, no item of an answer of this session: send the item"
        )
    history.add_named(_PARTS.get(name.partition("_")[0], "call"), turn)


def _tools(place: str, item: Mapping[str, Any], history: ResponsesHistory) -> None:
    # `request.py` reads them, by `additional_tools`.
    if not _brings_tools(item):
        raise bad(f"{place}.tools", f"{place}.tools must be a list")


_READERS: Mapping[str, Callable[[str, Mapping[str, Any], ResponsesHistory], None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "local_shell_call": _shell_call,
    "local_shell_call_output": _shell_output,
    "item_reference": _reference,
    "additional_tools": _tools,
}


def _only_names(item: Mapping[str, Any]) -> bool:
    return "id" in item and item.keys() <= {"id", "type"}


def _brings_tools(item: object) -> bool:
    match item:
        case {"type": "additional_tools", "tools": list()}:
            return True
    return False


def _text(place: str, item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or (not value and name in ("call_id", "name")):
        raise bad(f"{place}.{name}", f"{place}.{name} must be text")
    return value


def _content(place: str, content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad(place, f"{place} must be text or a list of parts")
    return "".join(_part(f"{place}[{n}]", part) for n, part in enumerate(content))


def _part(place: str, part: object) -> str:
    match part:
        case {"type": str(kind), "text": str(text)} if kind in _TEXT_PARTS:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": str(kind)} if kind in (*_TEXT_PARTS, "refusal"):
            raise bad(place, f"{place} must hold text")
        case {"type": str(kind)}:
            raise bad(place, f"{place} is of type {kind!r}: this model takes text only")
    raise bad(place, f"{place} must be an object with a type")
