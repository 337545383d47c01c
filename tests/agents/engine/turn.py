"""A turn of the acting engine: its tokens in chunks, with log-probs and alternatives."""

import random
from dataclasses import dataclass

import numpy as np

from producers.rollout.engine.contract import ChunkCallback, ChunkSpan, FinishReason, TokenChunk
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
    on_chunk: ChunkCallback
    said: int = 0

    def chunk(self, version: int) -> TokenChunk:
        """The next tokens."""
        start, length = self.said, len(self.ids) // 4
        self.said = end = min(start + TOKENS_A_STEP, length)
        ids, logprobs = self.ids[4 * start : 4 * end], self.logprobs[4 * start : 4 * end]
        return TokenChunk(
            self.offset + start,
            ids,
            logprobs,
            (ChunkSpan(self.offset + start, version),) if ids else (),
            self.finish_reason if end == length else None,
            *(_likeliest(ids, logprobs, self.top) if self.top else ()),
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


def _likeliest(ids: bytes, logprobs: bytes, count: int) -> tuple[bytes, bytes]:
    """Return rows of token ids and log-probs: each token, then others that are less likely."""
    sampled_N1 = np.frombuffer(ids, "<i4")[:, None]
    others_K = np.arange(count - 1, dtype="<i4")
    rows_NK = np.concatenate([sampled_N1, others_K + (others_K >= sampled_N1)], axis=1)
    logprobs_N1 = np.frombuffer(logprobs, "<f4")[:, None]
    less_N1 = np.minimum(logprobs_N1, np.log1p(-np.exp(logprobs_N1))) - 1
    logprobs_NK = np.concatenate([logprobs_N1, less_N1 - others_K], axis=1)
    return rows_NK.astype("<i4").tobytes(), logprobs_NK.astype("<f4").tobytes()
