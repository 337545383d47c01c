"""System prompt and messages of an Anthropic messages request in canonical form. Pure.

What one role says in a row is one message, as the vendor has it; each tool result is a message of
its own, and is to one of the calls in the last answer. An answer of ours that comes back is
canonically the message that was sampled. What a text model cannot take is refused with 400, never
dropped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from producers.gateway.dialects.anthropic_messages.tools import call_arguments
from producers.gateway.dialects.canonical import canonical_json
from producers.gateway.dialects.parameters import text
from producers.gateway.errors import ApiError, bad

Block = Mapping[str, Any]

# Claude Code writes it in front of its system prompt; its hash is another in each request.
_BILLING = "x-anthropic-billing-header:"
_LONE = (
    "{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. "
    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
)
_TAKES = "this model takes text and calls of the agent's own tools only"


@dataclass(slots=True)
class _Message:
    """A message in the making."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, object]] = field(default_factory=list)
    answers: str | None = None

    def canonical(self) -> dict[str, object]:
        if self.role != "assistant":
            read: dict[str, object] = {"role": self.role, "content": "\n".join(self.texts)}
            return read if self.answers is None else read | {"tool_call_id": self.answers}
        read, content = {"role": "assistant"}, "".join(self.texts)
        if content or not self.calls:
            read["content"] = content
        if thought := "".join(self.thoughts):
            read["reasoning_content"] = thought
        return read | {"tool_calls": self.calls} if self.calls else read


class AnthropicHistory:
    """Messages as they are read, one after the other."""

    def __init__(self) -> None:
        self._said: list[_Message] = []

    @property
    def ends_with_assistant(self) -> bool:
        """Whether the next turn would have to go on inside an answer."""
        return bool(self._said) and self._said[-1].role == "assistant"

    def canonical(self) -> tuple[bytes, ...]:
        """The messages as canonical JSON."""
        return tuple(canonical_json(said.canonical(), "messages") for said in self._said)

    def read_system(self, system: object) -> None:
        """Takes in the system prompt. Raises `ApiError`."""
        texts = [
            _text(place, block)
            for place, block in _blocks("system", system)
            if not str(block.get("text")).startswith(_BILLING)
        ]
        if texts:
            self._message_of("system").texts.extend(texts)

    def read_message(self, place: str, message: object) -> None:
        """Takes in a message. Raises `ApiError` that names the wrong member."""
        if not isinstance(message, dict):
            raise bad(place, f"{place} must be an object")
        role = message.get("role")
        read = _READ.get(role) if isinstance(role, str) else None
        if read is None:
            raise bad(f"{place}.role", f"{place}.role must be one of {', '.join(_READ)}")
        content = message.get("content")
        if not content and role == "system":
            return  # It may be there for its settings alone.
        if content in ("", []):
            self._message_of(str(role))
        for where, block in _blocks(f"{place}.content", content):
            read(self, where, block)

    def _message_of(self, role: str) -> _Message:
        """The message that `role` is saying."""
        if not self._said or self._said[-1].role != role:
            self._said.append(_Message(role))
        return self._said[-1]

    def _system(self, place: str, block: Block) -> None:
        self._message_of("system").texts.append(_text(place, block))

    def _user(self, place: str, block: Block) -> None:
        if block.get("type") == "tool_result":
            result = _tool_result(place, block)
            if result.answers not in self._calls():
                where = f"{place}.tool_use_id"
                raise bad(where, _LONE.format(where=where, call=result.answers))
            self._said.append(result)
        else:
            self._message_of("user").texts.append(_text(place, block))

    def _calls(self) -> Sequence[object]:
        """Ids of the calls in the last answer."""
        answers = (said for said in reversed(self._said) if said.role == "assistant")
        last = next(answers, None)
        return [] if last is None else [call["id"] for call in last.calls]

    def _assistant(self, place: str, block: Block) -> None:
        said = self._message_of("assistant")
        match block:
            case {"type": "thinking"}:
                said.thoughts.append(text(f"{place}.thinking", block.get("thinking")))
            case {"type": "redacted_thinking"}:
                pass  # Sealed by another model.
            case {"type": "tool_use"}:
                said.calls.append(_call(place, block))
            case _:
                said.texts.append(_text(place, block))


_READ: Mapping[str, Callable[[AnthropicHistory, str, Block], None]] = {
    "user": AnthropicHistory._user,
    "assistant": AnthropicHistory._assistant,
    "system": AnthropicHistory._system,
}


def canonical_history(system: object, messages: object) -> AnthropicHistory:
    """All that was said. Raises `ApiError` that names the wrong member."""
    if not isinstance(messages, list) or not messages:
        raise bad("messages", "messages: at least one message is required")
    history = AnthropicHistory()
    if system is not None:
        history.read_system(system)
    for n, message in enumerate(messages):
        history.read_message(f"messages.{n}", message)
    return history


def _blocks(place: str, content: object) -> Iterator[tuple[str, Block]]:
    if isinstance(content, str):
        if content:
            yield place, {"type": "text", "text": content}
        return
    if not isinstance(content, list):
        raise bad(place, f"{place} must be text or a list of content blocks")
    for n, block in enumerate(content):
        if not isinstance(block, dict):
            raise bad(f"{place}.{n}", f"{place}.{n} must be an object with a type")
        yield f"{place}.{n}", block


def _text(place: str, block: Block) -> str:
    """What a block says; of those that are not plain text, what they say in words."""
    match block:
        case {"type": "text", "text": str(said)}:
            return said
        case {"type": "document", "source": {"type": "text", "data": str(said)}}:
            return "\n".join([*_headings(block, "title", "context"), said])
        case {"type": "search_result", "content": list(parts)}:
            found = [_text(f"{place}.content.{n}", part) for n, part in enumerate(parts)]
            return "\n".join([*_headings(block, "title", "source"), *found])
        case {"type": "tool_reference", "tool_name": str(name)}:
            return name
    raise _refused(place, block)


def _headings(block: Block, *names: str) -> Sequence[str]:
    return [block[name] for name in names if isinstance(block.get(name), str)]


def _refused(place: str, block: object) -> ApiError:
    match block:
        case {"type": "text"}:
            return bad(place, f"{place} must hold text")
        case {"type": str(kind)}:
            return bad(place, f"{place} is of type {kind!r}: {_TAKES}")
    return bad(place, f"{place} must be an object with a type")


def _tool_result(place: str, block: Block) -> _Message:
    call = block.get("tool_use_id")
    if not isinstance(call, str) or not call:
        raise bad(f"{place}.tool_use_id", f"{place}.tool_use_id must name a tool call")
    content = block.get("content")
    parts = _blocks(f"{place}.content", "" if content is None else content)
    said = "\n".join(_text(where, part) for where, part in parts)
    # Templates know no failed result.
    shown = f"Error: {said}" if block.get("is_error") is True else said
    return _Message("tool", texts=[shown], answers=call)


def _call(place: str, block: Block) -> dict[str, object]:
    match block:
        case {"id": str(call_id), "name": str(name), "input": value} if call_id and name:
            function = {"name": name, "arguments": call_arguments(f"{place}.input", value)}
            return {"id": call_id, "type": "function", "function": function}
    raise bad(place, f"{place} must have an id, a name and an input")
