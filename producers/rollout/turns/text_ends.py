"""Ends that a turn's text decides: streams that end at a stop string, or after one call. Pure.

Stop strings are searched in the content that the agent reads, not in thinking or tool-call markup.
Tokens are parsed one by one, so the token that completes a stop string is known exactly. It is the
completion's last token, also if the stop string is white space. The content ends before the stop
string, and the deltas add up to the content. White space is held back as long as a stop string may
follow and trim it.

If a turn may make only one tool call, the token after the call decides. If that token ends the turn
by itself, it still belongs to the turn. So a model that makes one call samples exactly what it
would have sampled anyway. Any other token is cut off. The distribution stays the policy's own, as
with a stop string. This works only for calls that the stream reports as they come. Calls within
thinking are reported only at the end. So are all calls if the renderer parses whole completions
(`Renderer.streams` is false). Such a turn is not limited.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from seamlessflow.infra.rendering.completion import (
    NOTHING,
    MessageDelta,
    MessageStream,
    ParsedMessage,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES, unpack


class StopText:
    """A `MessageStream` over another one; no string in `stops` is empty.

    If `trimmed`, the content has no white space at its end.
    """

    def __init__(self, inner: MessageStream, stops: Sequence[str], *, trimmed: bool = True) -> None:
        self.stop_string: str | None = None
        """The stop string that ended the content: the first one in it. None until there is one."""
        self.found_after: int | None = None
        """Count of tokens up to and with the one that completed the stop string."""
        self._inner = inner
        self._stops = stops
        self._trimmed = trimmed
        self._held_back = max(map(len, stops)) - 1
        self._content = ""
        self._given = 0
        self._fed = 0

    def feed(self, ids: bytes) -> MessageDelta:
        delta = NOTHING
        for start in range(0, len(ids), TOKEN_BYTES):
            if self.found_after is not None:
                break
            self._fed += 1
            delta = joined(delta, self._read(self._inner.feed(ids[start : start + TOKEN_BYTES])))
        return delta

    def finish(self) -> MessageDelta:
        if self.found_after is not None:
            return NOTHING
        delta = self._read(self._inner.finish())
        if self.found_after is not None:  # found in text that was held back until now
            return delta
        return joined(delta, self._give(len(self._content)))

    @property
    def space(self) -> str:
        return "" if self.found_after is not None else self._inner.space

    @property
    def message(self) -> ParsedMessage:
        message = self._inner.message
        if self.found_after is None:
            return message
        return replace(message, content=self._shown())

    def _read(self, delta: MessageDelta) -> MessageDelta:
        # A stop string may begin in earlier text, so its longest possible beginning is held back.
        searched = max(0, len(self._content) - self._held_back)
        self._content += delta.content
        text = self._content + self._inner.space
        places = {stop: text.find(stop, searched) for stop in self._stops}
        stops = [stop for stop in self._stops if places[stop] >= 0]
        if stops:
            self.stop_string = min(stops, key=places.__getitem__)
            self.found_after = self._fed
            self._content = text[: places[self.stop_string]]
            return joined(replace(delta, content=""), self._give(len(self._shown())))
        return joined(replace(delta, content=""), self._give(self._settled()))

    def _settled(self) -> int:
        """Return how much of the content no later stop string can change."""
        end = max(self._given, len(self._content) - self._held_back)
        while self._trimmed and end > self._given and self._content[end - 1].isspace():
            end -= 1
        return end

    def _shown(self) -> str:
        return self._content.rstrip() if self._trimmed else self._content

    def _give(self, end: int) -> MessageDelta:
        text = self._content[self._given : end]
        self._given = max(self._given, end)
        return MessageDelta(content=text)


class OneCall:
    """A `MessageStream` over another one; tokens in `ends` end a turn by themselves."""

    def __init__(self, inner: MessageStream, ends: Collection[int]) -> None:
        self.found_after: int | None = None
        """Count of tokens up to the turn's end; None until a token after it came."""
        self._inner = inner
        self._ends = ends
        self._called = False
        self._fed = 0

    def feed(self, ids: bytes) -> MessageDelta:
        delta = NOTHING
        for place, token in enumerate(unpack(ids)):
            if self._called and token not in self._ends and self.found_after is None:
                self.found_after = self._fed
            if self.found_after is not None:
                break
            new = self._inner.feed(ids[TOKEN_BYTES * place : TOKEN_BYTES * (place + 1)])
            self._fed += 1
            self._called = self._called or bool(new.tool_calls)
            delta = joined(delta, new)
        return delta

    def finish(self) -> MessageDelta:
        return self._inner.finish()

    @property
    def space(self) -> str:
        return self._inner.space

    @property
    def message(self) -> ParsedMessage:
        return self._inner.message


def joined(first: MessageDelta, second: MessageDelta) -> MessageDelta:
    """Return one delta that adds both, one after the other."""
    if not first:
        return second
    if not second:
        return first
    return MessageDelta(
        first.content + second.content,
        first.reasoning + second.reasoning,
        first.tool_calls + second.tool_calls,
    )
