"""Answers of the clock engine: plain text from a place that follows from the prompt. Pure.

The text goes round. Its tokens follow from the prompt alone, so a greedy and a sampled answer to
one prompt are the same. The length follows from the turn. Another engine can therefore go on with
both.
"""

from dataclasses import dataclass

import numpy as np
import xxhash

from seamlessflow.producers.rollout.clock_engine.lengths import AnswerLengths
from seamlessflow.producers.rollout.engine.contract import FinishReason
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that will be sampled."""

    first: int
    """Place of its first token in the text."""
    length: int
    """Tokens of the whole completion."""
    reason: FinishReason
    stop: bytes = b""
    """Its last token, if that is not one of the text."""


class Answers:
    """The answers to all requests, from a text of at least one token."""

    def __init__(self, text: bytes, lengths: AnswerLengths) -> None:
        if not text or len(text) % TOKEN_BYTES:
            raise ValueError(f"the text has {len(text)} bytes, no run of token ids")
        self._text = text
        self._ids = frozenset(np.frombuffer(text, "<i4").tolist())
        self._lengths = lengths

    def to(self, request: Request, limit: int) -> Answer:
        """Return the answer to a request; `limit` is the most tokens of prompt and completion."""
        prompt = request.tokens[: request.prompt_length].tobytes()
        first = xxhash.xxh3_64_intdigest(prompt) % (len(self._text) // TOKEN_BYTES)
        room = min(request.sampling.max_tokens, limit - request.prompt_length)
        if request.stops:
            end = max(self._lengths.of(request), request.completed + 1)
            within = self._stop(first, request, min(room, end - 1))
            if within is not None:
                return Answer(first, within, "stop")
            if end <= room:
                return Answer(first, end, "stop", pack(request.sampling.stop_token_ids[:1]))
        return Answer(first, room, "length")

    def tokens(self, answer: Answer, start: int, end: int) -> bytes:
        """Return the ids of the completion from `start` to `end`."""
        if answer.stop and start < end == answer.length:
            return self._run(answer.first, start, end - 1) + answer.stop
        return self._run(answer.first, start, end)

    def _stop(self, first: int, request: Request, room: int) -> int | None:
        """Return the length up to and with the first token of the text that stops it, or None."""
        if room <= request.completed or self._ids.isdisjoint(request.stops):
            return None
        tokens = np.frombuffer(self._run(first, request.completed, room), "<i4")
        (places,) = np.nonzero(np.isin(tokens, list(request.stops)))
        return request.completed + int(places[0]) + 1 if places.size else None

    def _run(self, first: int, start: int, end: int) -> bytes:
        size, begin = len(self._text), (first + start) * TOKEN_BYTES % len(self._text)
        stop = begin + (end - start) * TOKEN_BYTES
        return (self._text * (stop // size + 1))[begin:stop]
