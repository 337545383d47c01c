"""A turn that the acting engine says: its tokens, cut into chunks, and what it reports of them."""

import random
from dataclasses import dataclass

import numpy as np

from producers.rollout.engine.contract import ChunkCallback, ChunkSpan, FinishReason, TokenChunk
from tests.agents.sampled_turns import SampledTurn

TOKENS_A_STEP = 3


@dataclass(eq=False)
class ActedTurn:
    """A turn being said: `ids` and `logprobs` of all that follows `offset`, `said` of it given."""

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
        """For the record."""
        return SampledTurn(
            self.request_id,
            self.prompt.hex(),
            self.ids.hex(),
            self.logprobs.hex(),
            self.finish_reason,
        )


def logprobs(prompt: bytes, count: int) -> bytes:
    """As many as there are tokens, different for each, none of a certain one."""
    source = random.Random(prompt)
    return np.array([-0.01 - source.expovariate(2.0) for _ in range(count)], "<f4").tobytes()


def _likeliest(ids: bytes, logprobs: bytes, count: int) -> tuple[bytes, bytes]:
    """Each token and behind it others, which are less likely and share some of what is left."""
    sampled_N1 = np.frombuffer(ids, "<i4")[:, None]
    others_K = np.arange(count - 1, dtype="<i4")
    rows_NK = np.concatenate([sampled_N1, others_K + (others_K >= sampled_N1)], axis=1)
    logprobs_N1 = np.frombuffer(logprobs, "<f4")[:, None]
    less_N1 = np.minimum(logprobs_N1, np.log1p(-np.exp(logprobs_N1))) - 1
    logprobs_NK = np.concatenate([logprobs_N1, less_N1 - others_K], axis=1)
    return rows_NK.astype("<i4").tobytes(), logprobs_NK.astype("<f4").tobytes()
