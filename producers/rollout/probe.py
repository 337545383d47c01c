"""What an engine has to get right before it serves: short questions, and their answers looked
through. Pure; `probing.py` asks.

All that a turn's records take from an engine is looked at. Nothing is left out for an engine that
cannot promise it: rounding alone is its own to say (`Engine.logprob_tolerance`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from producers.rollout.engine import FinishReason, SamplingParams, TokenChunk
from producers.rollout.engine_errors import EngineError

PROMPT_TEXT = "1 + 1 ="
LENGTH = 8
"""Tokens of an answer."""

SPLIT = 4
"""Where it is taken up again."""

TOP = 8
"""Most likely tokens asked for, more than the draw is narrowed to: a sampled one is among them."""

_NARROWED = 4
_TOKEN_BYTES = 4


class EngineProbeFailed(EngineError):
    """An engine whose output cannot be trusted; it must not serve."""

    def __init__(self, question: str, field: str, expected: object, got: object) -> None:
        self.question = question
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field} of the {question} answer: expected {expected}, got {got}")


@dataclass(frozen=True, slots=True)
class Question:
    """One request; `name` says what it is for."""

    name: str
    prompt: bytes
    sampling: SamplingParams
    completion: tuple[int, ...] = ()

    def fail(self, field: str, expected: object, got: object) -> NoReturn:
        """Raises `EngineProbeFailed`."""
        raise EngineProbeFailed(self.name, field, expected, got)


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens of a completion from `start` on; beside each a row of the most likely ones."""

    start: int
    ids: list[int]
    logprobs: list[float]
    rows: list[dict[int, float]]
    reason: FinishReason | None


def greedy(prompt: bytes, length: int = LENGTH) -> Question:
    """The most likely tokens, one after the other."""
    return Question("greedy", prompt, SamplingParams(length, temperature=0, top_logprobs=TOP))


def sampled(prompt: bytes) -> Question:
    """Drawn from a bent distribution: log-probabilities are to be those of the raw one."""
    bent = SamplingParams(LENGTH, temperature=0.7, top_k=_NARROWED, top_logprobs=TOP)
    return Question("sampled", prompt, bent)


def continued(prompt: bytes, first: Answer) -> Question:
    """A greedy answer taken up in its middle."""
    again = SamplingParams(LENGTH, temperature=0, top_logprobs=TOP)
    return Question("continued", prompt, again, tuple(first.ids[:SPLIT]))


def scored_again(prompt: bytes, first: Answer) -> Question:
    """What is most likely in the middle of a sampled answer."""
    one = SamplingParams(SPLIT + 1, temperature=0, top_logprobs=TOP)
    return Question("scored again", prompt, one, tuple(first.ids[:SPLIT]))


def stopped(prompt: bytes, first: Answer) -> Question:
    """A greedy answer whose first token is to end it, whichever of the likely ones it is."""
    stops = SamplingParams(LENGTH, 0, stop_token_ids=tuple(first.rows[0]), top_logprobs=TOP)
    return Question("stopped", prompt, stops)


def aborted(prompt: bytes) -> Question:
    """To be aborted before it begins."""
    return Question("aborted", prompt, SamplingParams(LENGTH))


def read(question: Question, chunks: Sequence[TokenChunk], version: int) -> Answer:
    """The answer that the chunks make up. Raises `EngineProbeFailed` for what is missing or wrong
    in their form."""
    start = end = len(question.completion)
    for place, chunk in enumerate(chunks):
        _check_chunk(question, chunk, end, version)
        end += len(chunk.token_ids) // _TOKEN_BYTES
        if chunk.finish_reason is not None and place + 1 < len(chunks):
            question.fail("finish_reason", "no chunk behind it", f"{len(chunks) - place - 1}")
    answer = Answer(
        start,
        ids=np.frombuffer(b"".join([chunk.token_ids for chunk in chunks]), "<i4").tolist(),
        logprobs=np.frombuffer(b"".join([chunk.logprobs for chunk in chunks]), "<f4").tolist(),
        rows=list(_rows(chunks)) if question.sampling.top_logprobs else [],
        reason=chunks[-1].finish_reason if chunks else None,
    )
    _check_values(question, answer)
    return answer


def check_full(question: Question, answer: Answer) -> None:
    """It went on to its `max_tokens`, which no stop token was to prevent."""
    if answer.reason != "length":
        question.fail("finish_reason", "length", answer.reason)
    count = question.sampling.max_tokens - answer.start
    if len(answer.ids) != count:
        question.fail("token_ids", f"{count} tokens", f"{len(answer.ids)} tokens")


def check_stopped(question: Question, answer: Answer) -> None:
    """Its stop token is there, with all that belongs to a token, and is the last."""
    if answer.reason != "stop":
        question.fail("finish_reason", "stop", answer.reason)
    stops = question.sampling.stop_token_ids
    if len(answer.ids) != 1 or answer.ids[0] not in stops:
        question.fail("token_ids", f"one of the stop tokens {list(stops)}", answer.ids)


def check_aborted(question: Question, answer: Answer) -> None:
    """It ended as such, without a token."""
    if answer.reason != "abort":
        question.fail("finish_reason", "abort", answer.reason)
    if answer.ids:
        question.fail("token_ids", "none", answer.ids)


def check_likely(question: Question, answer: Answer, tolerance: float) -> None:
    """Each token is one of the most likely, under the same distribution; a greedy one is the
    first."""
    for token, logprob, row in zip(answer.ids, answer.logprobs, answer.rows, strict=True):
        if token not in row:
            question.fail("top_ids", f"{token}, which was sampled, among them", list(row))
        if abs(row[token] - logprob) > tolerance:
            question.fail("logprobs", f"{row[token]:g}, as in top_logprobs", f"{logprob:g}")
        if question.sampling.temperature == 0 and max(row.values()) - logprob > tolerance:
            question.fail("token_ids", f"the most likely one, {next(iter(row))}", token)


def check_same(question: Question, first: Answer, again: Answer, tolerance: float) -> None:
    """`again`, the answer to `question`, is `first` from its own start on, with the same
    distributions. Greedy answers have the same tokens, up to where two were equally likely."""
    shift = again.start - first.start
    for place, row in enumerate(again.rows):
        before = first.rows[place + shift]
        _check_row(question, before, row, tolerance)
        token, expected = again.ids[place], first.ids[place + shift]
        if token != expected:
            if before[expected] - before.get(token, -math.inf) > 2 * tolerance:
                question.fail("token_ids", f"{expected} at {place + again.start}", token)
            return


def check_distribution(question: Question, first: Answer, again: Answer, tolerance: float) -> None:
    """`again`, one token in the middle of `first`, was drawn from the same distribution."""
    _check_row(question, first.rows[again.start - first.start], again.rows[0], tolerance)


def _check_row(
    question: Question, before: dict[int, float], row: dict[int, float], tolerance: float
) -> None:
    for token in (next(iter(before)), next(iter(row))):
        if token not in before or token not in row:
            question.fail("top_ids", f"{token} among them, as before", list(row))
    for token in before.keys() & row.keys():
        if not abs(before[token] - row[token]) <= tolerance:
            expected = f"{before[token]:g} for token {token}, as before, within {tolerance:g}"
            question.fail("logprobs", expected, f"{row[token]:g}")


def _check_chunk(question: Question, chunk: TokenChunk, end: int, version: int) -> None:
    if chunk.offset != end:
        question.fail("offset", end, chunk.offset)
    size = len(chunk.token_ids)
    if size % _TOKEN_BYTES:
        question.fail("token_ids", "whole int32 numbers", f"{size} bytes")
    wanted = size * question.sampling.top_logprobs
    for field, expected, data in (
        ("logprobs", size, chunk.logprobs),
        ("top_ids", wanted, chunk.top_ids),
        ("top_logprobs", wanted, chunk.top_logprobs),
    ):
        if len(data) != expected:
            question.fail(field, f"{expected} bytes", f"{len(data)} bytes")
    _check_spans(question, chunk, size // _TOKEN_BYTES, version)


def _check_spans(question: Question, chunk: TokenChunk, tokens: int, version: int) -> None:
    starts = [span.start for span in chunk.spans]
    within = all(chunk.offset <= start < chunk.offset + tokens for start in starts)
    if starts[:1] != [chunk.offset][:tokens] or starts != sorted(set(starts)) or not within:
        expected = f"spans of {tokens} tokens from {chunk.offset} on"
        question.fail("spans", expected, f"spans that start at {starts}")
    for span in chunk.spans:
        if span.version != version:
            question.fail("version", version, span.version)


def _check_values(question: Question, answer: Answer) -> None:
    if any(token < 0 for token in answer.ids):
        question.fail("token_ids", "numbers from 0 on", answer.ids)
    if not all(map(_is_logprob, answer.logprobs)):
        question.fail("logprobs", "finite numbers up to 0", answer.logprobs)
    for row in answer.rows:
        values = list(row.values())
        if len(row) != question.sampling.top_logprobs:
            question.fail("top_ids", f"{question.sampling.top_logprobs} different ones", list(row))
        if not all(map(_is_logprob, values)) or values != sorted(values, reverse=True):
            question.fail("top_logprobs", "finite numbers up to 0, descending", values)
        if sum(map(math.exp, values)) > 1.001:
            question.fail("top_logprobs", "probabilities of at most 1 together", values)


def _is_logprob(number: float) -> bool:
    return math.isfinite(number) and number <= 0


def _rows(chunks: Sequence[TokenChunk]) -> Iterator[dict[int, float]]:
    for chunk in chunks:
        if tokens := len(chunk.token_ids) // _TOKEN_BYTES:
            ids = np.frombuffer(chunk.top_ids, "<i4").reshape(tokens, -1).tolist()
            logprobs = np.frombuffer(chunk.top_logprobs, "<f4").reshape(tokens, -1).tolist()
            for row in zip(ids, logprobs, strict=True):
                yield dict(zip(*row, strict=True))
