"""The answer of the scripted engine: the same tokens for every prompt, from any offset. Pure.

The distribution is made up, but it is one: the scripted token has log-probability `LOGPROB`, all
others, in id order, follow at steps of 1, and a temperature changes it as it changes a model's.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from producers.rollout.engine.contract import FinishReason, SamplingParams
from schemas.tokens import TOKEN_BYTES, pack

LOGPROB = -0.5
"""The log-probability of every scripted token at temperature 1."""

FIRST_OTHER = math.log((1 - math.exp(LOGPROB)) * (1 - math.exp(-1)))
"""That of the first of the other tokens: all together then have a probability of 1."""


@dataclass(frozen=True)
class Script:
    """A pattern (int32 ids, at least one) repeated to `length` tokens, then a stop token.

    If a request has no stop token, the pattern goes on to its `max_tokens`. `tokens_per_second` is
    the speed of one request, None for the whole answer at once. `breaks_at` is the completion
    offset at which the engine fails, for tests of failures.
    """

    pattern: bytes
    length: int
    tokens_per_second: float | None = None
    breaks_at: int | None = None
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
            found = np.flatnonzero(np.isin(tokens, stop_token_ids))
            if found.size:
                return offset + int(found[0]) + 1
        return self.length + 1

    def _repeated(self, length: int) -> bytes:
        size = length * TOKEN_BYTES
        return (self.pattern * (size // len(self.pattern) + 1))[:size]


def logprobs(count: int, temperature: float = 1.0) -> bytes:
    """Return the log-probabilities of that many tokens at a temperature; at 1 if that is 0."""
    return np.array([_tempered(LOGPROB, temperature)], "<f4").tobytes() * count


def most_likely(ids: bytes, count: int, temperature: float) -> tuple[bytes, bytes]:
    """Return ids and log-probabilities of the `count` most likely tokens beside each of `ids`.

    They are the token itself and then, for want of a model, the first ones of the vocabulary.
    """
    tokens_N1 = np.frombuffer(ids, "<i4")[:, None]
    others_K = np.arange(count - 1, dtype="<i4")
    others_NK = others_K + (others_K >= tokens_N1)
    raw_K = [LOGPROB, *(FIRST_OTHER - others_K).tolist()]
    logprobs_K = np.array([_tempered(raw, temperature) for raw in raw_K], "<f4")
    rows_NK = np.concatenate([tokens_N1, others_NK], axis=1).astype("<i4")
    return rows_NK.tobytes(), logprobs_K.tobytes() * len(tokens_N1)


def _tempered(logprob: float, temperature: float) -> float:
    """Return a log-probability at another temperature: the others are a geometric series."""
    if temperature in (0, 1):
        return logprob
    others = math.exp(FIRST_OTHER / temperature) / -math.expm1(-1 / temperature)
    return logprob / temperature - math.log(math.exp(LOGPROB / temperature) + others)
