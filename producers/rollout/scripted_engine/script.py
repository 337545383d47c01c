"""The answer of the scripted engine: the same tokens for every prompt, from any offset. Pure."""

from dataclasses import dataclass, field

import numpy as np

from seamlessflow.producers.rollout.engine.contract import FinishReason, SamplingParams
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack


@dataclass(frozen=True)
class Script:
    """A pattern (int32 ids, at least one) repeated to `length` tokens, then a stop token.

    If a request has no stop token, the pattern goes on to its `max_tokens`. `tokens_per_second` is
    the speed of one request, None for the whole answer at once.
    """

    pattern: bytes
    length: int
    tokens_per_second: float | None = None
    _text: bytes = field(init=False, repr=False)
    _ids: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.pattern or len(self.pattern) % TOKEN_BYTES:
            raise ValueError(f"the pattern has {len(self.pattern)} bytes, no run of token ids")
        object.__setattr__(self, "_text", self._repeated(self.length))
        object.__setattr__(self, "_ids", frozenset(np.frombuffer(self._text, "<i4").tolist()))

    def end(
        self, prompt_length: int, offset: int, sampling: SamplingParams, limit: int
    ) -> tuple[int, FinishReason]:
        """Return the length of a completion that continues from `offset`, and why it ends there.

        `limit` is the most tokens of prompt and completion.
        """
        room = min(sampling.max_tokens, limit - prompt_length)
        stop = self._first_stop(offset, sampling.stop_token_ids)
        return (stop, "stop") if stop is not None and stop <= room else (room, "length")

    def tokens(self, start: int, end: int, stop_token_ids: tuple[int, ...]) -> bytes:
        """Return the ids of the completion from `start` to `end`."""
        if end <= self.length:
            return self._text[start * TOKEN_BYTES : end * TOKEN_BYTES]
        if stop_token_ids:
            return self._text[start * TOKEN_BYTES :] + pack(stop_token_ids[:1])
        return self._repeated(end)[start * TOKEN_BYTES :]

    def _first_stop(self, offset: int, stop_token_ids: tuple[int, ...]) -> int | None:
        """Return the length of the completion up to and with its first stop token, or None."""
        if not stop_token_ids:
            return None
        if not self._ids.isdisjoint(stop_token_ids):
            tokens = np.frombuffer(self._text, "<i4")[offset:]
            places = np.flatnonzero(np.isin(tokens, stop_token_ids))
            if places.size:
                return offset + int(places[0]) + 1
        return self.length + 1

    def _repeated(self, length: int) -> bytes:
        size = length * TOKEN_BYTES
        return (self.pattern * (size // len(self.pattern) + 1))[:size]
