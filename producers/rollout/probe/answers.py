"""One question of a probe, and the check on its answer's form: faults in an engine's chunks. Pure;
`questions.py` compares answers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.rollout.engine.contract import FinishReason, SamplingParams, TokenChunk
from seamlessflow.schemas.tokens import TOKEN_BYTES

ROUNDING = 1e-4
"""Rounding may raise an almost certain token's log-probability above 0, at most by this."""


class EngineProbeFailed(SeamlessFlowError):
    """An engine whose output cannot be trusted, so it must not serve.

    Not an `EngineError`, after which a new engine is started. Another start may mend an engine that
    hangs, breaks, or was right before it slept. If a new engine is wrong, the fault lasts
    (`lasting`).
    """

    lasting = False

    def __init__(self, question: str, field: str, expected: object, got: object) -> None:
        self.question = question
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field} of the {question} answer: expected {expected}, got {got}")


class EngineUnanswering(EngineProbeFailed):
    """An engine that gave no answer in time, or broke: another may give one."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request in a probe; `name` says what it is for."""

    name: str
    prompt: bytes
    sampling: SamplingParams
    completion: tuple[int, ...] = ()

    def fail(self, field: str, expected: object, got: object) -> NoReturn:
        """Raise `EngineProbeFailed`."""
        raise EngineProbeFailed(self.name, field, expected, got)


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """A completion's tokens from `start` on, and the most likely tokens beside each."""

    start: int
    ids: list[int]
    logprobs: list[float]
    tops: list[dict[int, float]]
    reason: FinishReason | None


def read(question: Question, chunks: Sequence[TokenChunk], version: int) -> ProbeAnswer:
    """Return the answer that the chunks make up. Raises `EngineProbeFailed` if one is malformed."""
    start = end = len(question.completion)
    for place, chunk in enumerate(chunks):
        _check_chunk(question, chunk, end, version)
        end += len(chunk.token_ids) // TOKEN_BYTES
        if chunk.finish_reason is not None and place + 1 < len(chunks):
            question.fail("finish_reason", "no chunk behind it", f"{len(chunks) - place - 1}")
    answer = ProbeAnswer(
        start,
        ids=np.frombuffer(b"".join([chunk.token_ids for chunk in chunks]), "<i4").tolist(),
        logprobs=np.frombuffer(b"".join([chunk.logprobs for chunk in chunks]), "<f4").tolist(),
        tops=list(_tops(chunks)) if question.sampling.top_logprobs else [],
        reason=chunks[-1].finish_reason if chunks else None,
    )
    _check_values(question, answer)
    return answer


def _check_chunk(question: Question, chunk: TokenChunk, end: int, version: int) -> None:
    if chunk.offset != end:
        question.fail("offset", end, chunk.offset)
    size = len(chunk.token_ids)
    if size % TOKEN_BYTES:
        question.fail("token_ids", "whole int32 numbers", f"{size} bytes")
    wanted = size * question.sampling.top_logprobs
    for field, expected, data in (
        ("logprobs", size, chunk.logprobs),
        ("top_ids", wanted, chunk.top_ids),
        ("top_logprobs", wanted, chunk.top_logprobs),
    ):
        if len(data) != expected:
            question.fail(field, f"{expected} bytes", f"{len(data)} bytes")
    _check_spans(question, chunk, size // TOKEN_BYTES, version)


def _check_spans(question: Question, chunk: TokenChunk, tokens: int, version: int) -> None:
    # A chunk with tokens begins with a span at its offset; one without has none.
    starts = [span.start for span in chunk.spans]
    within = all(chunk.offset <= start < chunk.offset + tokens for start in starts)
    if starts[:1] != [chunk.offset][:tokens] or starts != sorted(set(starts)) or not within:
        expected = f"spans of {tokens} tokens from {chunk.offset} on"
        question.fail("spans", expected, f"spans that start at {starts}")
    for span in chunk.spans:
        if span.version != version:
            question.fail("version", version, span.version)


def _check_values(question: Question, answer: ProbeAnswer) -> None:
    if any(token < 0 for token in answer.ids):
        question.fail("token_ids", "numbers from 0 on", answer.ids)
    if not all(map(_is_logprob, answer.logprobs)):
        question.fail("logprobs", "finite numbers up to 0", answer.logprobs)
    for row in answer.tops:
        values = list(row.values())
        if len(row) != question.sampling.top_logprobs:
            question.fail("top_ids", f"{question.sampling.top_logprobs} different ones", list(row))
        if not all(map(_is_logprob, values)) or values != sorted(values, reverse=True):
            question.fail("top_logprobs", "finite numbers up to 0, descending", values)
        if sum(map(math.exp, values)) > 1 + 10 * ROUNDING:
            question.fail("top_logprobs", "probabilities of at most 1 together", values)


def _is_logprob(number: float) -> bool:
    return math.isfinite(number) and number <= ROUNDING


def _tops(chunks: Sequence[TokenChunk]) -> Iterator[dict[int, float]]:
    for chunk in chunks:
        if tokens := len(chunk.token_ids) // TOKEN_BYTES:
            ids = np.frombuffer(chunk.top_ids, "<i4").reshape(tokens, -1).tolist()
            logprobs = np.frombuffer(chunk.top_logprobs, "<f4").reshape(tokens, -1).tolist()
            for row in zip(ids, logprobs, strict=True):
                yield dict(zip(*row, strict=True))
