"""Completions parsed as assistant messages, whole or while their tokens arrive.

It owns the message types and, with `tagged_stream.py`, the streams for `rendering/renderer.py`. A
stream's deltas after n tokens depend only on those n tokens, never on how they were cut. So a
worker that continues a turn feeds the tokens again, drops their deltas, and goes on. All deltas
together are the message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seamlessflow.infra.rendering.tokenizer import TextStream
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.schemas.tokens import unpack


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A completion's assistant message, for the agent.

    `content` and `reasoning` have no white space at their ends, except from a `PlainStream`.
    `reasoning` is None if the completion has no thinking, and empty if its thinking is empty. A
    malformed tool call stays in `content` word for word, and its reason (`invalid_json`,
    `unclosed_block`, ...) is in `malformed`.
    """

    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    reasoning_closed: bool = True
    """False if the completion ended inside its thinking."""
    reasoning_tokens: int | None = None
    """Count of thinking tokens, with those that begin and end it; None if that is unknown."""

    @property
    def well_formed(self) -> bool:
        return not self.malformed and self.reasoning_closed


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """Part that some tokens add to the message; falsy if they add nothing."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)


NOTHING = MessageDelta()


class MessageStream(Protocol):
    """Parser for one completion: takes its tokens, returns its message's deltas. Never blocks."""

    def feed(self, ids: bytes) -> MessageDelta:
        """Return what `ids` (int32) add. Text that may still become markup is held back."""

    def finish(self) -> MessageDelta:
        """Return what was held back. Called once, after the last token."""

    @property
    def space(self) -> str:
        """White space behind the content so far; it is content once text follows it."""

    @property
    def message(self) -> ParsedMessage:
        """The whole message; valid after `finish`."""


class WholeStream:
    """Stream for formats without an incremental parser: returns everything at the end."""

    space = ""

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
    """Stream for completions without a chat template: all text is content."""

    space = ""

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
