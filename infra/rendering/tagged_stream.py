"""Incremental parser for completions whose thinking and tool calls stand between special tokens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from seamlessflow.infra.rendering.completion import MessageDelta, ParsedMessage
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.rendering.tool_calls import MalformedCall, ToolCall
from seamlessflow.schemas.tokens import unpack

ParseCalls = Callable[[list[int]], tuple[ToolCall, ...]]
"""Return the calls in one block of ids, its two delimiters included. Raises `MalformedCall`."""


@dataclass(frozen=True, slots=True)
class Markup:
    """Ids of the tokens that structure a completion.

    `tool_call` is None if no tools were offered: then that token is text.
    """

    stops: frozenset[int]
    think: int
    think_end: int
    tool_call: int | None
    tool_call_end: int

    def without_tools(self) -> "Markup":
        """Return the markup for a completion for which no tools were offered."""
        return replace(self, tool_call=None)

    def opens_reasoning(self, generation_prompt: list[int]) -> bool:
        """Return whether a prompt with this end leaves thinking open."""
        for token in reversed(generation_prompt):
            if token in (self.think, self.think_end):
                return token == self.think
        return False


class Phase(Enum):
    """Part of a completion that the stream is in."""

    LEADING = auto()
    """Only white space so far: thinking may still open."""
    REASONING = auto()
    UNDECIDED = auto()
    """A tool call opened inside thinking. It ends the thinking, unless `</think>` follows."""
    CONTENT = auto()
    TOOL = auto()


class TaggedStream:
    """Parser for models with a token for each mark, such as Qwen.

    The marks are `<think>`, `</think>`, `<tool_call>` and `</tool_call>`. It returns content and
    thinking at once, a tool call when its block closes. The first stop token ends the message.
    """

    def __init__(
        self, markup: Markup, tokenizer: Tokenizer, parse_calls: ParseCalls, *, in_reasoning: bool
    ) -> None:
        self._markup = markup
        self._watched = {markup.think, markup.think_end, markup.tool_call, markup.tool_call_end}
        self._decode = tokenizer.decode
        self._text = tokenizer.text_stream()
        self._parse_calls = parse_calls
        self._phase = Phase.REASONING if in_reasoning else Phase.LEADING
        self._stopped = False
        self._held: list[int] = []
        self._had_reasoning = in_reasoning
        self._reasoning_tokens = 0
        self._content = _TrimmedText()
        self._reasoning = _TrimmedText()
        self._calls: list[ToolCall] = []
        self._calls_returned = 0
        self._malformed: list[str] = []

    def feed(self, ids: bytes) -> MessageDelta:
        self._read(self._until_stop(unpack(ids)))
        return self._new_parts()

    def finish(self) -> MessageDelta:
        self._flush()
        if self._phase is Phase.UNDECIDED:
            held = self._held
            self._held = []
            self._phase = Phase.CONTENT
            self._read(held)
            self._flush()
        if self._phase is Phase.TOOL:
            self._keep_malformed("unclosed_block")
        return self._new_parts()

    @property
    def space(self) -> str:
        return self._content.space

    @property
    def message(self) -> ParsedMessage:
        return ParsedMessage(
            content=self._content.whole,
            reasoning=self._reasoning.whole if self._had_reasoning else None,
            tool_calls=tuple(self._calls),
            malformed=tuple(self._malformed),
            reasoning_closed=self._phase is not Phase.REASONING,
            reasoning_tokens=self._reasoning_tokens,
        )

    def _until_stop(self, ids: list[int]) -> list[int]:
        if self._stopped:
            return []
        for place, token in enumerate(ids):
            if token in self._markup.stops:
                self._stopped = True
                return ids[:place]
        return ids

    def _read(self, ids: list[int]) -> None:
        start = 0
        for place, token in enumerate(ids):
            if token in self._watched:
                self._read_plain(ids[start:place])
                self._read_markup(token)
                start = place + 1
        self._read_plain(ids[start:])

    def _read_plain(self, ids: list[int]) -> None:
        match self._phase:
            case Phase.TOOL | Phase.UNDECIDED:
                self._held.extend(ids)
            case Phase.REASONING:
                self._reasoning_tokens += len(ids)
                self._reasoning.add(self._text.feed(ids))
            case Phase.LEADING | Phase.CONTENT:
                self._content.add(self._text.feed(ids))

    def _read_markup(self, token: int) -> None:
        match self._phase:
            case Phase.TOOL:
                self._held.append(token)
                if token == self._markup.tool_call_end:
                    self._close_block()
            case Phase.UNDECIDED:
                self._read_undecided(token)
            case Phase.REASONING:
                self._read_in_reasoning(token)
            case Phase.LEADING | Phase.CONTENT:
                self._read_in_content(token)

    def _read_in_content(self, token: int) -> None:
        self._flush()
        if token == self._markup.tool_call:
            self._held = [token]
            self._phase = Phase.TOOL
        elif self._phase is Phase.LEADING and token == self._markup.think and self._content.blank:
            self._had_reasoning = True
            self._phase = Phase.REASONING
            self._reasoning_tokens += 1
        else:
            self._content.add(self._text.feed([token]))

    def _read_in_reasoning(self, token: int) -> None:
        if token == self._markup.tool_call:
            self._held = [token]
            self._phase = Phase.UNDECIDED
            return
        self._reasoning_tokens += 1
        if token == self._markup.think_end:
            self._flush()
            self._phase = Phase.CONTENT
        elif token != self._markup.think:
            self._reasoning.add(self._text.feed([token]))

    def _read_undecided(self, token: int) -> None:
        if token != self._markup.think_end:
            self._held.append(token)
            return
        self._reasoning_tokens += len(self._held) + 1
        thought = [i for i in self._held if i != self._markup.think]
        self._reasoning.add(self._text.feed(thought))
        self._flush()
        self._held = []
        self._phase = Phase.CONTENT

    def _close_block(self) -> None:
        try:
            self._calls.extend(self._parse_calls(self._held))
        except MalformedCall as malformed:
            self._keep_malformed(malformed.reason)
        self._held = []
        self._phase = Phase.CONTENT

    def _keep_malformed(self, reason: str) -> None:
        self._malformed.append(reason)
        self._content.add(self._decode(self._held))

    def _flush(self) -> None:
        thinking = self._phase in (Phase.REASONING, Phase.UNDECIDED)
        (self._reasoning if thinking else self._content).add(self._text.flush())

    def _new_parts(self) -> MessageDelta:
        calls = tuple(self._calls[self._calls_returned :])
        self._calls_returned = len(self._calls)
        return MessageDelta(self._content.new_part(), self._reasoning.new_part(), calls)


class _TrimmedText:
    """Growing text without white space at its start; trailing space is held until text follows."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._taken = 0
        self.space = ""
        """White space at the end that was not returned yet."""

    @property
    def blank(self) -> bool:
        return not self._parts

    @property
    def whole(self) -> str:
        return "".join(self._parts)

    def add(self, text: str) -> None:
        text = self.space + text if self._parts else text.lstrip()
        kept = text.rstrip()
        if kept:
            self._parts.append(kept)
        self.space = text[len(kept) :]

    def new_part(self) -> str:
        """Return the text added since the last call."""
        new = "".join(self._parts[self._taken :])
        self._taken = len(self._parts)
        return new
