"""One tool call a turn: a message stream that ends behind the first whole call. Pure.

The token behind a call decides. A token that ends the turn by itself still belongs to the turn. A
model that makes one call therefore samples exactly what it would have sampled anyway. Any other
token is cut off. The distribution stays the policy's own, as with a stop string.

It works only for calls that the stream reports as they come. A renderer that parses a completion as
a whole (`Renderer.streams` is false) reports them at the end. So does a call within thinking. Such
a turn is not limited.
"""

from collections.abc import Collection

from seamlessflow.infra.rendering.completion import (
    NOTHING,
    MessageDelta,
    MessageStream,
    ParsedMessage,
)
from seamlessflow.producers.rollout.turns.stop_text import joined
from seamlessflow.schemas.tokens import TOKEN_BYTES, unpack


class OneCall:
    """A `MessageStream` over another one; `ends` are the tokens that end a turn by themselves."""

    def __init__(self, inner: MessageStream, ends: Collection[int]) -> None:
        self.found_after: int | None = None
        """The number of tokens up to the end of the turn; None until a token behind it came."""
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
