"""One request to an engine: checks, when it is finished, and the chunks it gets. Pure.

The torch engine holds requests as they are, the vLLM engine wraps them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    ChunkSpan,
    FinishReason,
    SamplingParams,
    TokenChunk,
)
from seamlessflow.producers.rollout.engine.errors import (
    PromptTooLong,
    RequestInvalid,
    no_structured_output,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES

TopTokens = tuple[bytes, bytes]
"""The most likely tokens beside one token: ids (int32) and log-probabilities (float32)."""

NO_TOP: TopTokens = (b"", b"")
_SEED_MASK = 2**64 - 1


@dataclass(eq=False, slots=True)
class Request:
    """A request; `tokens` is the prompt and what was already sampled elsewhere."""

    request_id: str
    tokens: npt.NDArray[np.int32]
    prompt_length: int
    sampling: SamplingParams
    seed: int
    on_chunk: ChunkCallback
    computed: int = 0
    """Count of its first tokens whose keys and values an engine computed before."""
    stops: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        if self.completed:  # the last token's are computed when the next one is sampled
            self.computed = len(self.tokens) - 1
        self.stops = frozenset(self.sampling.stop_token_ids)
        self.seed &= _SEED_MASK

    @classmethod
    def from_bytes(
        cls,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        seed: int,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> "Request":
        """Return the request from `submit`'s arguments, unchecked. Raises `RequestInvalid` if the
        bytes are no whole token ids.
        """
        parts = [_token_ids(request_id, prompt), _token_ids(request_id, completion)]
        tokens = np.concatenate(parts)
        return cls(request_id, tokens, len(parts[0]), sampling, seed, on_chunk, computed)

    @property
    def completed(self) -> int:
        """Count of completion tokens that were already sampled elsewhere."""
        return len(self.tokens) - self.prompt_length

    def check(self, vocabulary: int, limit: int, *, schemas: bool = False) -> None:
        """Raise `RequestInvalid`, `PromptTooLong` or `SamplingUnsupported` for a bad request.

        `schemas` is true if the engine has structured output.
        """
        if self.prompt_length == 0:
            raise RequestInvalid(self.request_id, "the prompt is empty")
        if self.sampling.json_schema is not None and not schemas:
            raise no_structured_output(self.request_id)
        if self.sampling.top_logprobs > vocabulary:
            reason = f"top_logprobs is {self.sampling.top_logprobs}, of {vocabulary} tokens in all"
            raise RequestInvalid(self.request_id, reason)
        if len(self.tokens) > limit:
            raise PromptTooLong(self.request_id, len(self.tokens), limit)
        outside = (self.tokens < 0) | (self.tokens >= vocabulary)
        if outside.any():
            token = int(self.tokens[outside.argmax()])
            reason = f"token {token} is outside the vocabulary of {vocabulary}"
            raise RequestInvalid(self.request_id, reason)

    def finish_reason(self, completed: int, last: int, limit: int) -> FinishReason | None:
        """Return why a completion of `completed` tokens that ends with `last` is finished, or None.

        `limit`: most tokens in prompt and completion together.
        """
        if completed and last in self.stops:
            return "stop"
        full = completed >= self.sampling.max_tokens or self.prompt_length + completed >= limit
        return "length" if full else None

    def finished_before_start(self, limit: int) -> FinishReason | None:
        """Return the finish reason of a continuation with nothing left to sample, else None."""
        return self.finish_reason(self.completed, int(self.tokens[-1]), limit)


RequestChunk = tuple[Request, TokenChunk]
"""A chunk of tokens, and the request that it answers."""


def _token_ids(request_id: str, data: bytes) -> npt.NDArray[np.int32]:
    """Return little-endian int32 bytes as an array. Raises `RequestInvalid`."""
    if len(data) % TOKEN_BYTES:
        raise RequestInvalid(request_id, f"{len(data)} bytes are not a run of int32 token ids")
    return np.frombuffer(data, "<i4").astype(np.int32, copy=False)


def token_chunks(
    requests: Sequence[Request],
    offsets: Sequence[int],
    tokens: npt.NDArray[np.int64],
    logprobs: npt.NDArray[np.float32],
    tops: Sequence[TopTokens],
    version: int,
    limit: int,
) -> Iterator[TokenChunk]:
    """Yield a chunk for each request: one token, sampled by `version`."""
    id_bytes = tokens.astype("<i4").tobytes()
    logprob_bytes = logprobs.astype("<f4").tobytes()
    values = zip(requests, offsets, tokens.tolist(), tops, strict=True)
    for index, (request, offset, token, top) in enumerate(values):
        part = slice(4 * index, 4 * index + 4)
        yield TokenChunk(
            offset,
            id_bytes[part],
            logprob_bytes[part],
            (ChunkSpan(offset, version),),
            request.finish_reason(offset + 1, token, limit),
            *top,
        )


def last_chunk(offset: int, reason: FinishReason) -> TokenChunk:
    """Return the chunk that ends a request without a further token."""
    return TokenChunk(offset, b"", b"", (), reason)
