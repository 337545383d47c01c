"""A turn of the acting engine: its tokens in chunks, with log-probs and alternatives."""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seamlessflow.producers.rollout.engine.contract import (
    MOST_TOP_LOGPROBS,
    ChunkCallback,
    ChunkSpan,
    FinishReason,
    TokenChunk,
)
from tests.agents.engine.record import SampledTurn

TOKENS_A_STEP = 3


@dataclass(eq=False)
class ActedTurn:
    """A turn under way: `ids` and `logprobs` of all tokens from `offset`, `said` of them sent."""

    request_id: str
    prompt: bytes
    offset: int
    ids: bytes
    logprobs: bytes
    finish_reason: FinishReason
    top: int
    temperature: float
    on_chunk: ChunkCallback
    said: int = 0

    def chunk(self, version: int) -> TokenChunk:
        """The next tokens."""
        start, length = self.said, len(self.ids) // 4
        self.said = end = min(start + TOKENS_A_STEP, length)
        ids, logprobs = self.ids[4 * start : 4 * end], self.logprobs[4 * start : 4 * end]
        ids_NK, logprobs_NK = _likeliest(ids, logprobs, self.temperature)
        return TokenChunk(
            self.offset + start,
            ids,
            logprobs_NK[:, 0].tobytes(),
            (ChunkSpan(self.offset + start, version),) if ids else (),
            self.finish_reason if end == length else None,
            ids_NK[:, : self.top].tobytes(),
            logprobs_NK[:, : self.top].tobytes(),
        )

    def sampled(self) -> SampledTurn:
        """Return the turn for the engine's record."""
        return SampledTurn(
            self.request_id,
            self.prompt.hex(),
            self.ids.hex(),
            self.logprobs.hex(),
            self.finish_reason,
        )


def logprobs(prompt: bytes, count: int) -> bytes:
    """Return a different log-prob for each token, none of them 0."""
    source = random.Random(prompt)
    return np.array([-0.01 - source.expovariate(2.0) for _ in range(count)], "<f4").tobytes()


def _likeliest(
    ids: bytes, logprobs: bytes, temperature: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return rows of token ids and log-probs: each token, then others that are less likely.

    At a temperature other than 1 these are all the tokens there are.
    """
    sampled_N1 = np.frombuffer(ids, "<i4")[:, None]
    others_K = np.arange(MOST_TOP_LOGPROBS - 1, dtype="<i4")
    rows_NK = np.concatenate([sampled_N1, others_K + (others_K >= sampled_N1)], axis=1)
    logprobs_N1 = np.frombuffer(logprobs, "<f4")[:, None]
    less_N1 = np.minimum(logprobs_N1, np.log1p(-np.exp(logprobs_N1))) - 1
    logprobs_NK = np.concatenate([logprobs_N1, less_N1 - others_K], axis=1)
    if temperature not in (0, 1):
        logprobs_NK = logprobs_NK / temperature
        logprobs_NK -= np.log(np.exp(logprobs_NK).sum(axis=1, keepdims=True))
    return rows_NK.astype("<i4"), logprobs_NK.astype("<f4")
