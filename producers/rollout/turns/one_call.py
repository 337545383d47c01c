"""One tool call a turn: a message stream that ends behind the first whole call. Pure.

The token behind a call decides: one that ends the turn by itself still belongs to it, so a model
that makes one call samples the very turn it would have sampled anyway; any other ends the turn
before it. Nothing is bent: all tokens up to there were drawn as always, as before a stop string.

Calls are seen where the stream tells them as they come. A renderer that reads a completion whole
(`Renderer.streams` is false) and a call that stands inside thinking tell theirs at the end only:
such a turn is not limited.
"""

from collections.abc import Collection

from infra.rendering.completion import NOTHING, MessageDelta, MessageStream, ParsedMessage
from producers.rollout.turns.stop_text import joined
from schemas.tokens import TOKEN_BYTES, unpack


class OneCall:
    """`MessageStream` over another one. `ends`: the tokens that end a turn by themselves."""

    def __init__(self, inner: MessageStream, ends: Collection[int]) -> None:
        self.found_after: int | None = None
        """How many tokens were fed up to the end of the turn, once a token behind it came."""
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
    def message(self) -> ParsedMessage:
        return self._inner.message
