"""Chunks from a made-up token distribution, for engines without a model. Pure.

The token that such an engine samples has log-probability `LOGPROB`. All others follow in id order,
each lower by 1. A temperature changes the distribution as it changes a model's.
"""

import math

import numpy as np

from seamlessflow.producers.rollout.engine.contract import (
    ChunkSpan,
    FinishReason,
    SamplingParams,
    TokenChunk,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES

LOGPROB = -0.5
"""The log-probability of every sampled token at temperature 1."""

FIRST_OTHER = math.log((1 - math.exp(LOGPROB)) * (1 - math.exp(-1)))
"""The first other token's log-probability: with it all probabilities sum to 1."""


def made_up_chunk(
    start: int, ids: bytes, sampling: SamplingParams, version: int, reason: FinishReason | None
) -> TokenChunk:
    """Return a chunk with a request's tokens from `start` on, sampled by `version`."""
    count = sampling.top_logprobs
    temperature = sampling.temperature
    top = _most_likely(ids, count, temperature) if count else ()
    sampled = logprobs(len(ids) // TOKEN_BYTES, temperature)
    return TokenChunk(start, ids, sampled, (ChunkSpan(start, version),), reason, *top)


def logprobs(count: int, temperature: float = 1.0) -> bytes:
    """Return log-probabilities for `count` sampled tokens at a temperature; 0 counts as 1."""
    return np.array([_tempered(LOGPROB, temperature)], "<f4").tobytes() * count


def _most_likely(ids: bytes, count: int, temperature: float) -> tuple[bytes, bytes]:
    """Return ids and log-probabilities of the `count` most likely tokens beside each of `ids`.

    They are the token itself and then, for want of a model, the vocabulary's first ones.
    """
    tokens_N1 = np.frombuffer(ids, "<i4")[:, None]
    others_K = np.arange(count - 1, dtype="<i4")
    others_NK = others_K + (others_K >= tokens_N1)
    raw_K = [LOGPROB, *(FIRST_OTHER - others_K).tolist()]
    logprobs_K = np.array([_tempered(raw, temperature) for raw in raw_K], "<f4")
    rows_NK = np.concatenate([tokens_N1, others_NK], axis=1).astype("<i4")
    return rows_NK.tobytes(), logprobs_K.tobytes() * len(tokens_N1)


def _tempered(logprob: float, temperature: float) -> float:
    """Return a log-probability at another temperature. The others form a geometric series."""
    if temperature in (0, 1):
        return logprob
    others = math.exp(FIRST_OTHER / temperature) / -math.expm1(-1 / temperature)
    return logprob / temperature - math.log(math.exp(LOGPROB / temperature) + others)
