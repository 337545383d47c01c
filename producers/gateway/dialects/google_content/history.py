"""A Google request's system instruction and contents, in canonical form. Pure.

Consecutive contents with one role become one message: an agent sends a streamed answer back with a
content for each event. Each function response becomes a separate message and must answer a call in
the model's last message. It names the call by its id, or else by its function's name. Responses by
name take the calls in order. The messages are then put in call order. If an agent sends back one of
our answers, it becomes the message that was sampled. Input that a text model cannot read is refused
with 400, never dropped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import call_arguments, tool_call
from seamlessflow.producers.gateway.dialects.google_content.members import (
    at,
    listed,
    members,
    signed_thought,
)
from seamlessflow.producers.gateway.dialects.history import ReadHistory, ReadMessage, Wording
from seamlessflow.producers.gateway.dialects.parameters import flag, text, unsupported
from seamlessflow.producers.gateway.errors import ApiError, bad
from seamlessflow.schemas.json_text import write_json

HistoryPart = Mapping[str, Any]
_BESIDE = ("thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution")
"""Members that only describe a part's data."""
_EQUAL_NUMBERS = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call parts of the function call turn"
)
_RESULTS = Wording(
    "contents",
    _EQUAL_NUMBERS + " ({call} has two responses).",
    _EQUAL_NUMBERS + " ({call} has no response).",
)
_TEXT_ONLY = "this model takes text, and calls and responses of the agent's own functions only"


@dataclass(slots=True)
class _Said(ReadMessage):
    """A message while its parts are read."""

    signed: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def thought(self) -> str:
        # An agent may have left out the thoughts that it was shown, but not their signatures.
        return "".join(self.signed) or ReadMessage.thought(self)


class GoogleHistory(ReadHistory[_Said]):
    """A request's messages, read one after the other."""

    def __init__(self) -> None:
        super().__init__(_Said, _RESULTS)
        self._calls = 0

    def read_system(self, instruction: object) -> None:
        """Add the system instruction; its role does not matter. Raises `ApiError`."""
        place = "systemInstruction"
        texts = [
            _text(where, kind, part)
            for where, kind, part in _parts(place, members(place, instruction))
        ]
        if any(texts):
            self._message_of("system").texts.extend(texts)

    def read_content(self, place: str, content: object) -> None:
        """Add a content. Raises `ApiError` that names the wrong member."""
        fields = members(place, content)
        role = fields.get("role", "user")
        read = _READ.get(role) if isinstance(role, str) else None
        if read is None:
            raise bad(f"{place}.role", f"{place}.role must be user or model")
        if role == "model":
            self._message_of("assistant")
        elif not fields.get("parts"):
            raise bad(f"{place}.parts", f"{place}.parts must not be empty")
        # Responses are read first: the vendor takes them and texts in any order.
        parts = sorted(_parts(place, fields), key=lambda part: part[1] != "functionResponse")
        for where, kind, part in parts:
            read(self, where, kind, part)

    def _user(self, place: str, kind: str, part: HistoryPart) -> None:
        if kind == "functionResponse":
            self._messages.append(self._response(at(place, kind), part[kind]))
        else:
            self._message_of("user").texts.append(_text(place, kind, part))

    def _model(self, place: str, kind: str, part: HistoryPart) -> None:
        message = self._message_of("assistant")
        message.signed.append(signed_thought(part.get("thoughtSignature")))
        if kind == "functionCall":
            self._calls += 1
            # The vendor's older models give calls no ids, and some agents drop the ids.
            call = _call(at(place, kind), part[kind], f"call-{self._calls}")
            message.calls.append(call)
        elif flag(f"{place}.thought", part.get("thought", False)):
            message.thoughts.append(_own_text(place, kind, part))
        else:
            message.texts.append(_own_text(place, kind, part))

    def _response(self, place: str, value: object) -> _Said:
        """Return a function's response as the message that answers its call."""
        fields = members(place, value)
        unsupported([])(f"{place}.parts", fields.get("parts", []))
        unsupported(False)(f"{place}.willContinue", fields.get("willContinue", False))
        name = text(f"{place}.name", fields.get("name", ""))
        asked = self._last_answer()
        call = _answered(place, name, fields.get("id"), asked)
        asked.answered.add(call)
        shown = _shown(f"{place}.response", fields.get("response", {}))
        return _Said("tool", texts=[shown], answered_call=call)


_READ: Mapping[str, Callable[[GoogleHistory, str, str, HistoryPart], None]] = {
    "user": GoogleHistory._user,
    "function": GoogleHistory._user,
    "model": GoogleHistory._model,
}


def canonical_history(instruction: object, contents: object) -> GoogleHistory:
    """Return a request's messages. Raises `ApiError` that names the wrong member."""
    if not listed("contents", contents):
        raise bad("contents", "contents must not be empty")
    history = GoogleHistory()
    if instruction is not None:
        history.read_system(instruction)
    for n, content in enumerate(listed("contents", contents)):
        history.read_content(f"contents[{n}]", content)
    return history


def _parts(place: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str, HistoryPart]]:
    """Yield each part's place, the name of the member with its data, and its members."""
    for n, value in enumerate(listed(f"{place}.parts", content.get("parts", []))):
        where = f"{place}.parts[{n}]"
        part = members(where, value)
        kinds = [name for name in part if name not in _BESIDE]
        if not kinds and "thoughtSignature" in part:
            kinds = ["text"]
            part = {**part, "text": ""}
        if len(kinds) != 1:
            raise bad(where, f"{where} must have exactly one kind of data, such as text")
        yield where, kinds[0], part


def _text(place: str, kind: str, part: HistoryPart) -> str:
    """Return the text in a part that the agent wrote."""
    if flag(f"{place}.thought", part.get("thought", False)):
        raise bad(f"{place}.thought", f"{place}.thought: only the model has thoughts")
    return _own_text(place, kind, part)


def _own_text(place: str, kind: str, part: HistoryPart) -> str:
    if kind != "text":
        raise _refused(at(place, kind))
    return text(f"{place}.text", part["text"])


def _refused(place: str) -> ApiError:
    message = f"{place} is not supported here: {_TEXT_ONLY}"
    return ApiError(400, message, code="unsupported_value", param=place)


def _call(place: str, value: object, unnamed: str) -> dict[str, Any]:
    fields = members(place, value)
    unsupported([])(f"{place}.partialArgs", fields.get("partialArgs", []))
    name = fields.get("name")
    call_id = fields.get("id", "") or unnamed
    if not isinstance(name, str) or not name:
        raise bad(f"{place}.name", f"{place}.name must be text and not empty")
    arguments = call_arguments(f"{place}.args", fields.get("args", {}))
    return tool_call(text(f"{place}.id", call_id), name, arguments)


def _answered(place: str, name: str, call_id: object, asked: _Said) -> str:
    """Return the call id that a response answers. Raises `ApiError` if there is no such call."""
    calls: Sequence[str]
    if call_id:
        calls = [call["id"] for call in asked.calls if call["id"] == call_id]
    else:
        calls = [
            call["id"]
            for call in asked.calls
            if call["function"]["name"] == name and call["id"] not in asked.answered
        ]
    if calls:
        return calls[0]
    where = f"{place}.{'id' if call_id else 'name'}"
    wrong = str(call_id or name)[:200]
    raise bad(where, f"{where} is {wrong!r}, no call of the model's content before it")


def _shown(place: str, response: object) -> str:
    """Return a response as text: its `output`, its `error`, or else the whole response."""
    if not isinstance(response, dict):
        raise bad(place, f"{place} must be an object")
    match response:
        case {"output": output} if len(response) == 1:
            return _as_text(place, output)
        case {"error": error} if len(response) == 1:
            # Chat templates have no form for a failed result.
            return f"Error: {_as_text(place, error)}"
    return _as_text(place, response)


def _as_text(place: str, value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return write_json(value).decode()
    except TypeError as error:
        raise bad(place, f"{place} cannot be stored: {error}") from error
