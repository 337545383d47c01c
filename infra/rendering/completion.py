"""A completion read as an assistant message, whole or while its tokens still come.

Owns the message types and, with `tagged_stream.py`, the streams of `infra/rendering/renderer.py`.
What a stream has given after n tokens depends on those n tokens alone, never on how they were cut:
whoever takes over a stream feeds the tokens again, drops what comes out, and goes on. All deltas
together are the message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from infra.rendering.tokenizer import TextStream
from infra.rendering.tool_calls import ToolCall
from schemas.tokens import unpack


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What the agent is to see of a completion.

    `content` and `reasoning` have no white space at their ends, except where a `PlainStream` read
    them. `reasoning` is None where the completion has no thinking, empty where it is empty. A
    malformed tool call stays in `content` word for word, and its reason (`invalid_json`,
    `unclosed_block`, ...) is in `malformed`.
    """

    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    reasoning_closed: bool = True
    """False where the completion ended inside its thinking."""
    reasoning_tokens: int | None = None
    """Tokens of thinking, with those that begin and end it; None where nobody can tell."""

    @property
    def well_formed(self) -> bool:
        return not self.malformed and self.reasoning_closed


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """What some tokens add to the message; falsy where that is nothing."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)


NOTHING = MessageDelta()


class MessageStream(Protocol):
    """Tokens of one completion in, deltas of its message out. Never blocks."""

    def feed(self, ids: bytes) -> MessageDelta:
        """What `ids` (int32) add. Text that may still turn out to be markup is held back."""

    def finish(self) -> MessageDelta:
        """What was held back; to be called once, after the last token."""

    @property
    def message(self) -> ParsedMessage:
        """The whole message; valid after `finish`."""


class WholeStream:
    """Formats without an incremental reading here: everything comes out at the end."""

    def __init__(self, parse: Callable[[bytes], ParsedMessage]) -> None:
        self._parse = parse
        self._ids = bytearray()
        self._message = ParsedMessage()

    def feed(self, ids: bytes) -> MessageDelta:
        self._ids += ids
        return NOTHING

    def finish(self) -> MessageDelta:
        self._message = message = self._parse(bytes(self._ids))
        return MessageDelta(message.content, message.reasoning or "", message.tool_calls)

    @property
    def message(self) -> ParsedMessage:
        return self._message


class PlainStream:
    """Completions of a prompt without a chat template: all is content, as `text` spells it."""

    def __init__(self, text: TextStream) -> None:
        self._text = text
        self._content: list[str] = []

    def feed(self, ids: bytes) -> MessageDelta:
        return self._add(self._text.feed(unpack(ids)))

    def finish(self) -> MessageDelta:
        return self._add(self._text.flush())

    @property
    def message(self) -> ParsedMessage:
        return ParsedMessage("".join(self._content))

    def _add(self, new: str) -> MessageDelta:
        self._content.append(new)
        return MessageDelta(new)
