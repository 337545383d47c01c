"""A Responses request's input as canonical messages. Pure.

One turn's items (reasoning, messages, calls) become one assistant message, as it was sampled. Some
input is refused with 400, never dropped:

- input that a text model cannot read
- items from tools that OpenAI's servers run
- an output before its call

Only reasoning that another server encrypted is dropped, since no process here can read it. Outputs
are put in call order.

The ids of our own items name their turn. An agent may only name an item (`item_reference`) instead
of sending it. The manager then finds it. The reference stands for its turn's whole message,
together with the items that were sent. Without ids, the order of the items decides. Reasoning
begins a turn, and so does a message right after a message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seamlessflow.producers.gateway.dialects.canonical import tool_call
from seamlessflow.producers.gateway.dialects.history import Wording, canonical_turns
from seamlessflow.producers.gateway.dialects.openai_responses.items import (
    ResponseItem,
    custom_call,
    reasoning_text,
    shell_call,
    turn_of_item,
)
from seamlessflow.producers.gateway.dialects.openai_responses.tools import function_name
from seamlessflow.producers.gateway.errors import ApiError, bad
from seamlessflow.schemas.identity import turn_of_tool_call, turn_reference

_InputPart = Literal["reasoning", "message", "call"]
_ROLES = {"user": "user", "system": "system", "developer": "system"}
_RESULTS = Wording(
    "input",
    "Duplicate output for call_id {call!r}: each call must have exactly one output.",
    "No tool output found for function call {call}.",
    between=("user", "system"),
)
_TEXT_PARTS = ("input_text", "output_text", "text")
_PARTS: Mapping[str, _InputPart] = {"rs": "reasoning", "msg": "message"}
"""By the prefix in an item's id; all others are calls."""


@dataclass(slots=True)
class _AssistantTurn:
    """One turn's assistant message, while its items are read."""

    turn: str | None = None
    last: _InputPart = "reasoning"
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[ResponseItem] = field(default_factory=list)
    is_named: bool = False
    """True if the agent named an item instead of sending it."""

    def may_contain(self, part: _InputPart, turn: str | None) -> bool:
        """Return whether the next item belongs to this turn too.

        Without ids, an item that a model would not sample after the last one begins another turn.
        """
        if turn is not None and self.turn is not None:
            return turn == self.turn
        match part:
            case "reasoning":
                return self.last == "reasoning"
            case "message":
                return self.last != "message"
        return True

    def message(self) -> ResponseItem:
        """Return the message in canonical form, or the reference that stands for it."""
        sent: ResponseItem = {}
        content = "".join(self.texts)
        if self.calls:
            sent["tool_calls"] = self.calls
        if self.reasoning:
            sent["reasoning_content"] = "".join(self.reasoning)
        if self.is_named and self.turn is not None:
            return turn_reference(self.turn, sent | ({"content": content} if content else {}))
        if content or not self.calls:
            sent["content"] = content
        return {"role": "assistant", **sent}


class _History:
    """The messages that were read so far.

    With `continues` the input follows a response, whose calls only the manager knows.
    """

    def __init__(self, continues: bool = False) -> None:
        self._continues = continues
        self._messages: list[_AssistantTurn | ResponseItem] = []
        self._assistant: _AssistantTurn | None = None
        self._after_tool_answer = False
        self._calls: set[str] = set()
        self._named: set[str | None] = set()

    def assistant_message(self, part: _InputPart, turn: str | None) -> _AssistantTurn:
        """Return the message that an assistant's item belongs to."""
        if self._assistant is None or not self._belongs(self._assistant, part, turn):
            self._assistant = _AssistantTurn()
            self._after_tool_answer = False
            self._messages.append(self._assistant)
        self._assistant.turn = self._assistant.turn or turn
        self._assistant.last = part
        return self._assistant

    def add_call(self, call: ResponseItem, turn: str | None) -> None:
        """Add an assistant's call."""
        self.assistant_message("call", turn).calls.append(call)
        self._calls.add(call["id"])

    def add_named(self, part: _InputPart, turn: str) -> None:
        """Add a turn's item that the agent named instead of sending it."""
        self.assistant_message(part, turn).is_named = True
        self._named.add(turn)

    def may_have_called(self, call_id: str) -> bool:
        """Return whether there is, or may be, an earlier call with this id."""
        return (
            self._continues or call_id in self._calls or turn_of_tool_call(call_id) in self._named
        )

    def add_tool_answer(self, message: ResponseItem) -> None:
        """Add a tool's answer."""
        self._messages.append(message)
        self._after_tool_answer = True

    def add_message(self, message: ResponseItem) -> None:
        """Add a message with another role."""
        self._messages.append(message)
        self._assistant = None

    def messages(self) -> list[ResponseItem]:
        """Return all messages in canonical form."""
        return [
            message.message() if isinstance(message, _AssistantTurn) else message
            for message in self._messages
        ]

    def _belongs(self, assistant: _AssistantTurn, part: _InputPart, turn: str | None) -> bool:
        # Some agents put each tool's answer right after its call, between items of one turn.
        if self._after_tool_answer:
            return turn is not None and turn == assistant.turn
        return assistant.may_contain(part, turn)


def canonical_input(value: object, continues: bool = False) -> tuple[bytes, ...]:
    """Return each message as canonical JSON. Raises `ApiError` that names the wrong member.

    `continues`: the input follows a response, whose calls the gateway does not know.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad("input", "input must be text or a list of at least one item")
    history = _History(continues)
    for n, item in enumerate(value):
        _read(f"input[{n}]", item, history)
    return canonical_turns(history.messages(), _RESULTS)


def additional_tools(value: object) -> list[object]:
    """Return the tools that are sent inside the input instead of as a parameter."""
    items = value if isinstance(value, list) else []
    return [tool for item in items if _brings_tools(item) for tool in item["tools"]]


def _read(place: str, item: object, history: _History) -> None:
    if not isinstance(item, dict):
        raise bad(place, f"{place} must be an object")
    kind = item.get("type")
    # A message, and an item that is only named, may leave out their type.
    if kind is None and "role" in item:
        kind = "message"
    elif kind is None and _only_names(item):
        kind = "item_reference"
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        message = f"{place} is of type {kind!r}, which is not supported"
        raise ApiError(400, message, code="unsupported_value", param=f"{place}.type")
    read(place, item, history)


def _message(place: str, item: Mapping[str, Any], history: _History) -> None:
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


def _reasoning(place: str, item: Mapping[str, Any], history: _History) -> None:
    if text := reasoning_text(item):
        history.assistant_message("reasoning", turn_of_item(item)).reasoning.append(text)


def _function_call(place: str, item: Mapping[str, Any], history: _History) -> None:
    name = function_name(_text(place, item, "name"), item.get("namespace"))
    call = tool_call(_text(place, item, "call_id"), name, _text(place, item, "arguments"))
    history.add_call(call, turn_of_item(item))


def _custom_call(place: str, item: Mapping[str, Any], history: _History) -> None:
    _text(place, item, "name"), _text(place, item, "call_id")
    call = custom_call(item, _text(place, item, "input"))
    history.add_call(call, turn_of_item(item))


def _shell_call(place: str, item: Mapping[str, Any], history: _History) -> None:
    _text(place, item, "call_id")
    action = item.get("action")
    if not isinstance(action, dict):
        raise bad(f"{place}.action", f"{place}.action must be an object")
    history.add_call(shell_call(item, action), turn_of_item(item))


def _output(place: str, item: Mapping[str, Any], history: _History) -> None:
    output = item.get("output")
    content = "" if output is None else _content(f"{place}.output", output)
    call = _text(place, item, "call_id")
    if not history.may_have_called(call):
        where = f"{place}.call_id"
        raise bad(where, f"{where} is {call!r}, but no call of that id stands before this output")
    history.add_tool_answer({"role": "tool", "content": content, "tool_call_id": call})


def _shell_output(place: str, item: Mapping[str, Any], history: _History) -> None:
    # Agents may send the call's id as the output's id.
    named = item if item.get("call_id") is not None else {**item, "call_id": item.get("id")}
    _output(place, named, history)


def _reference(place: str, item: Mapping[str, Any], history: _History) -> None:
    name = _text(place, item, "id")
    turn = turn_of_item({"id": name})
    if turn is None:
        where = f"{place}.id"
        raise bad(
            where, f"{where} is {name!r}, no item of an answer of this session: send the item"
        )
    history.add_named(_PARTS.get(name.partition("_")[0], "call"), turn)


def _tools(place: str, item: Mapping[str, Any], history: _History) -> None:
    # `request.py` reads them, by `additional_tools`.
    if not _brings_tools(item):
        raise bad(f"{place}.tools", f"{place}.tools must be a list")


_READERS: Mapping[str, Callable[[str, Mapping[str, Any], _History], None]] = {
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
