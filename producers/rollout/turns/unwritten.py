"""A dispatch's tokens that are sampled and not yet on a record. Pure; used by `dispatch.py`."""

from collections.abc import Iterable

import numpy as np

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.rollout.engine.contract import TokenChunk
from seamlessflow.schemas.records import TokenTensor, VersionSpan
from seamlessflow.schemas.tokens import TOKEN_BYTES


class ChunkOutOfOrder(SeamlessFlowError):
    """A chunk that leaves tokens out or repeats some: the log would have a hole."""

    def __init__(self, turn_id: str, expected: int, offset: int) -> None:
        self.turn_id = turn_id
        self.expected = expected
        self.offset = offset
        super().__init__(f"turn {turn_id}: chunk at offset {offset}, expected {expected}")


class ChunkIncomplete(SeamlessFlowError):
    """A chunk with too few or too many values for its tokens."""

    def __init__(self, turn_id: str, field: str, expected: int, got: int) -> None:
        self.turn_id = turn_id
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"turn {turn_id}: {got} bytes of {field}, expected {expected}")


class Unwritten:
    """The unwritten tokens; `offset` is where in the completion the first one stands.

    Beside each token are the `top_logprobs` most likely ones. The engine reports `reported` most
    likely tokens, which may be more.
    """

    def __init__(
        self, turn_id: str, offset: int, top_logprobs: int, reported: int | None = None
    ) -> None:
        self.offset = offset
        self.ids = b""
        self.logprobs = b""
        self.spans: list[VersionSpan] = []
        self._turn_id = turn_id
        self._top = top_logprobs
        self._reported = top_logprobs if reported is None else reported
        self._top_ids = b""
        self._top_logprobs = b""

    @property
    def end(self) -> int:
        """The completion's length so far."""
        return self.offset + len(self.ids) // TOKEN_BYTES

    @property
    def tensors(self) -> tuple[TokenTensor, ...]:
        """The most likely tokens and their log-probabilities, if the request asks for them."""
        if not (self._top and self.ids):
            return ()
        return (
            self._tensor("topk_ids", "int32", self._top_ids),
            self._tensor("topk_logprobs", "float32", self._top_logprobs),
        )

    def add(self, chunks: list[TokenChunk]) -> bytes:
        """Add chunks; return their token ids. Raises `ChunkOutOfOrder`, `ChunkIncomplete`."""
        end = self.end
        for chunk in chunks:
            end = self._checked(chunk, end)
            for span in chunk.spans:
                self._add_span(span.start, span.version)
        new = b"".join([chunk.token_ids for chunk in chunks])
        self.ids += new
        self.logprobs += b"".join([chunk.logprobs for chunk in chunks])
        if self._top:
            self._top_ids += self._likeliest([chunk.top_ids for chunk in chunks])
            self._top_logprobs += self._likeliest([chunk.top_logprobs for chunk in chunks])
        return new

    def cut(self, length: int) -> None:
        """Drop all tokens after the completion's first `length`."""
        kept = max(0, length - self.offset) * TOKEN_BYTES
        self.ids = self.ids[:kept]
        self.logprobs = self.logprobs[:kept]
        self._top_ids = self._top_ids[: kept * self._top]
        self._top_logprobs = self._top_logprobs[: kept * self._top]
        self.spans = [span for span in self.spans if span.start < length]

    def clear(self) -> None:
        """Note that all tokens are on a record now."""
        self.offset = self.end
        self.ids = self.logprobs = self._top_ids = self._top_logprobs = b""
        self.spans = []

    def _likeliest(self, parts: Iterable[bytes]) -> bytes:
        """Return for each token the first `top_logprobs` values among those reported."""
        data = b"".join(parts)
        if self._reported == self._top:
            return data
        values_NK = np.frombuffer(data, "<i4").reshape(-1, self._reported)
        return values_NK[:, : self._top].tobytes()

    def _checked(self, chunk: TokenChunk, end: int) -> int:
        """Return the end of a chunk that must begin at `end`."""
        if chunk.offset != end:
            raise ChunkOutOfOrder(self._turn_id, end, chunk.offset)
        size = len(chunk.token_ids)
        if len(chunk.logprobs) != size:
            raise ChunkIncomplete(self._turn_id, "logprobs", size, len(chunk.logprobs))
        if self._reported:
            self._check_size("top_ids", size * self._reported, chunk.top_ids)
            self._check_size("top_logprobs", size * self._reported, chunk.top_logprobs)
        return end + size // TOKEN_BYTES

    def _check_size(self, field: str, expected: int, data: bytes) -> None:
        if len(data) != expected:
            raise ChunkIncomplete(self._turn_id, field, expected, len(data))

    def _add_span(self, start: int, version: int) -> None:
        if not self.spans or self.spans[-1].version_max != version:
            self.spans.append(VersionSpan(start=start, version_min=version, version_max=version))

    def _tensor(self, name: str, dtype: str, data: bytes) -> TokenTensor:
        return TokenTensor(
            name=name,
            from_token=self.offset,
            to_token=self.end,
            dtype=dtype,
            shape=(self.end - self.offset, self._top),
            data=data,
        )
