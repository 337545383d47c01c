"""The clock engine's answers: their text, their length, and the turns that get them. Pure.

An answer repeats one text, from a place that the prompt decides. Only the prompt decides the
tokens, so its greedy and sampled answers are the same. The turn decides the length. So another
engine can go on with both.

Seed, session and the turn's place in it decide the draw for a length. The place is the prompt's
length and the number among the choices. So two rehearsals of a run have the same lengths in any
order of events. A turn that moves to another worker is as long as one that stays.
"""

from dataclasses import dataclass
from random import Random

import numpy as np
import xxhash

from seamlessflow.infra.device_model.batch import ModelledTurn
from seamlessflow.infra.device_model.settings import LengthsSection, drawn_tokens
from seamlessflow.producers.rollout.engine.contract import FinishReason, TokenChunk
from seamlessflow.producers.rollout.engine.made_up import made_up_chunk
from seamlessflow.producers.rollout.engine.request import Request, last_chunk
from seamlessflow.schemas.identity import group_of_session
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack


class AnswerLengths:
    """Distribution of lengths, and the seed for all draws."""

    def __init__(self, section: LengthsSection, seed: int = 0) -> None:
        self._section = section
        self._seed = seed

    def completion_tokens(self, request: Request) -> int:
        """Return the token count of a request's whole completion, with its stop token."""
        sampling = request.sampling
        # A request without a session, as in a benchmark, is named by its seed.
        session = sampling.session or str(request.seed)
        deviation = self._normal(session, request.prompt_length, sampling.choice)
        return drawn_tokens(self._section, self._normal(group_of_session(session)), deviation)

    def _normal(self, *parts: str | int) -> float:
        named = "/".join(str(part) for part in (self._seed, *parts))
        return Random(named).gauss()  # nosec B311 # repeatable draws


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that will be sampled."""

    first: int
    """Place in the text where its first token stands."""
    length: int
    """Token count of the whole completion."""
    reason: FinishReason
    stop: bytes = b""
    """Its last token, if that is a stop token outside the text."""


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
            end = max(self._lengths.completion_tokens(request), request.completed + 1)
            within = self._stop(first, request, min(room, end - 1))
            if within is not None:
                return Answer(first, within, "stop")
            if end <= room:
                return Answer(first, end, "stop", pack(request.sampling.stop_token_ids[:1]))
        return Answer(first, room, "length")

    def tokens(self, answer: Answer, start: int, end: int) -> bytes:
        """Return the completion's ids from `start` to `end`."""
        if answer.stop and start < end == answer.length:
            return self._run(answer.first, start, end - 1) + answer.stop
        return self._run(answer.first, start, end)

    def _stop(self, first: int, request: Request, room: int) -> int | None:
        """Return the length up to and with the first token that stops it, or None."""
        if room <= request.completed or self._ids.isdisjoint(request.stops):
            return None
        tokens = np.frombuffer(self._run(first, request.completed, room), "<i4")
        (places,) = np.nonzero(np.isin(tokens, list(request.stops)))
        return request.completed + int(places[0]) + 1 if places.size else None

    def _run(self, first: int, start: int, end: int) -> bytes:
        size = len(self._text)
        begin = (first + start) * TOKEN_BYTES % len(self._text)
        stop = begin + (end - start) * TOKEN_BYTES
        return (self._text * (stop // size + 1))[begin:stop]


@dataclass(slots=True, eq=False, kw_only=True)
class ClockTurn(ModelledTurn):
    """A turn that waits or runs. `sent` counts the completion tokens delivered so far."""

    request: Request
    answer: Answer
    answers: Answers
    sent: int
    held: tuple[int, ...] = ()
    """Blocks of the prefix cache that it uses."""

    @classmethod
    def from_request(cls, request: Request, answers: Answers, limit: int) -> "ClockTurn":
        """Return the turn for a request that is not finished before its start."""
        answer = answers.to(request, limit)
        return cls(
            context=len(request.tokens),
            left=answer.length - request.completed,
            computed=request.computed,
            request=request,
            answer=answer,
            answers=answers,
            sent=request.completed,
        )

    @property
    def tokens(self) -> bytes:
        """All tokens that it has at its end."""
        rest = self.answers.tokens(self.answer, self.request.completed, self.answer.length)
        return self.request.tokens.tobytes() + rest

    def chunk(self, end: int, version: int, reason: FinishReason | None = None) -> TokenChunk:
        """Return what was sampled since the last chunk, up to `end`."""
        start = self.sent
        self.sent = end
        if reason is not None and end == start:
            return last_chunk(start, reason)
        ids = self.answers.tokens(self.answer, start, end)
        return made_up_chunk(start, ids, self.request.sampling, version, reason)
