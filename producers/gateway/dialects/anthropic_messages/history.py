"""An Anthropic messages request's system prompt and messages, in canonical form. Pure.

Consecutive messages with one role become one message, as at the vendor. Each tool result becomes a
separate message. It must answer a call in the last assistant message, and results are put in call
order. If an agent sends back one of our answers, it becomes the message that was sampled. Input
that a text model cannot read is refused with 400. Only redacted thinking is dropped, since only the
vendor that encrypted it can read it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import call_arguments, tool_call
from seamlessflow.producers.gateway.dialects.history import ReadHistory, ReadMessage, Wording
from seamlessflow.producers.gateway.dialects.parameters import text
from seamlessflow.producers.gateway.errors import ApiError, bad

Block = Mapping[str, Any]

# Claude Code writes this line before its system prompt, with a hash that changes in each request.
_BILLING = "x-anthropic-billing-header:"
_LONE = (
    "{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. "
    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
)
_RESULTS = Wording(
    "messages",
    "each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call}",
    "`tool_use` ids were found without `tool_result` blocks immediately after: {call}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    between=("system",),
)
_TEXT_ONLY = "this model takes text and calls of the agent's own tools only"


class AnthropicHistory(ReadHistory[ReadMessage]):
    """A request's messages, read one after the other."""

    def __init__(self) -> None:
        super().__init__(ReadMessage, _RESULTS)

    def read_system(self, system: object) -> None:
        """Add the system prompt. Raises `ApiError`."""
        texts = [
            _text(place, block)
            for place, block in _blocks("system", system)
            if not str(block.get("text")).startswith(_BILLING)
        ]
        if texts:
            self._message_of("system").texts.extend(texts)

    def read_message(self, place: str, message: object) -> None:
        """Add a message. Raises `ApiError` that names the wrong member."""
        if not isinstance(message, dict):
            raise bad(place, f"{place} must be an object")
        role = message.get("role")
        read = _READ.get(role) if isinstance(role, str) else None
        if read is None:
            raise bad(f"{place}.role", f"{place}.role must be one of {', '.join(_READ)}")
        content = message.get("content")
        if not content and role == "system":
            return  # It may be sent only for the settings in it.
        if content in ("", []):
            self._message_of(str(role))
        for where, block in _blocks(f"{place}.content", content):
            read(self, where, block)

    def _system(self, place: str, block: Block) -> None:
        self._message_of("system").texts.append(_text(place, block))

    def _user(self, place: str, block: Block) -> None:
        if block.get("type") == "tool_result":
            result = _tool_result(place, block)
            if result.answered_call not in [call["id"] for call in self._last_answer().calls]:
                where = f"{place}.tool_use_id"
                raise bad(where, _LONE.format(where=where, call=result.answered_call))
            self._messages.append(result)
        else:
            self._message_of("user").texts.append(_text(place, block))

    def _assistant(self, place: str, block: Block) -> None:
        message = self._message_of("assistant")
        match block:
            case {"type": "thinking"}:
                message.thoughts.append(text(f"{place}.thinking", block.get("thinking")))
            case {"type": "redacted_thinking"}:
                pass  # Only the vendor that encrypted it can read it.
            case {"type": "tool_use"}:
                message.calls.append(_call(place, block))
            case _:
                message.texts.append(_text(place, block))


_READ: Mapping[str, Callable[[AnthropicHistory, str, Block], None]] = {
    "user": AnthropicHistory._user,
    "assistant": AnthropicHistory._assistant,
    "system": AnthropicHistory._system,
}


def canonical_history(system: object, messages: object) -> AnthropicHistory:
    """Return a request's messages. Raises `ApiError` that names the wrong member."""
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
    """Return a block's text. Blocks of other kinds that contain text are rendered as text."""
    match block:
        case {"type": "text", "text": str(words)}:
            return words
        case {"type": "document", "source": {"type": "text", "data": str(words)}}:
            return "\n".join([*_headings(block, "title", "context"), words])
        case {"type": "search_result", "content": list(parts)}:
            texts = [_text(f"{place}.content.{n}", part) for n, part in enumerate(parts)]
            return "\n".join([*_headings(block, "title", "source"), *texts])
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
            return bad(place, f"{place} is of type {kind!r}: {_TEXT_ONLY}")
    return bad(place, f"{place} must be an object with a type")


def _tool_result(place: str, block: Block) -> ReadMessage:
    call = block.get("tool_use_id")
    if not isinstance(call, str) or not call:
        raise bad(f"{place}.tool_use_id", f"{place}.tool_use_id must name a tool call")
    content = block.get("content")
    parts = _blocks(f"{place}.content", "" if content is None else content)
    words = "\n".join(_text(where, part) for where, part in parts)
    # Chat templates have no form for a failed result.
    shown = f"Error: {words}" if block.get("is_error") is True else words
    return ReadMessage("tool", texts=[shown], answered_call=call)


def _call(place: str, block: Block) -> dict[str, Any]:
    match block:
        case {"id": str(call_id), "name": str(name), "input": value} if call_id and name:
            return tool_call(call_id, name, call_arguments(f"{place}.input", value))
    raise bad(place, f"{place} must have an id, a name and an input")
