"""One dispatch under way: an engine's chunks in, records of `sessions` out. Pure.

`advance` gives at most one record a call. Offsets of a dispatch are contiguous, and nothing comes
after `TurnCompleted`, `TurnInterrupted` or `TurnFailed`. Called by `serving.py` alone.
"""

from collections.abc import Iterable

import xxhash

from infra.completion import NOTHING, MessageDelta, MessageStream
from infra.errors import SeamlessFlowError
from producers.rollout.assistant_message import delta_json, message_json
from producers.rollout.engine import FinishReason, TokenChunk
from producers.rollout.refusal import PAST_DEADLINE, failed
from producers.rollout.stop_text import StopText, joined
from schemas.records import (
    GenerateTurn,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnProgressed,
    VersionSpan,
)

STREAMED_EVERY_MS = 100
UNSTREAMED_EVERY_MS = 2_000
SILENCE_MS = 5_000
"""After so long without a record an empty `TurnProgressed` says that the turn is still held."""

Output = TurnProgressed | TurnCompleted | TurnInterrupted | TurnFailed
_TOKEN_BYTES = 4


class ChunkOutOfOrder(SeamlessFlowError):
    """An engine left tokens out or repeated some; the log would have a hole."""

    def __init__(self, turn_id: str, expected: int, offset: int) -> None:
        self.turn_id = turn_id
        self.expected = expected
        self.offset = offset
        super().__init__(f"turn {turn_id}: chunk at offset {offset}, expected {expected}")


class Turn:
    """`due_ms` is when `advance` wants to be called although no urgent chunk came.

    `urgent` says that any chunk is worth a call at once: the first of a streamed turn, and all
    where a text may end the turn.
    """

    def __init__(self, request: GenerateTurn, stream: MessageStream, now_ms: int) -> None:
        self.request = request
        self._stops = StopText(stream, request.sampling.stop) if request.sampling.stop else None
        self._stream: MessageStream = self._stops or stream
        self._offset = len(request.completion_ids) // _TOKEN_BYTES
        self._calls_given = 0
        if request.completion_ids:
            self._calls_given = len(self._stream.feed(request.completion_ids).tool_calls)
        self._ids = b""
        self._logprobs = b""
        self._spans: list[VersionSpan] = []
        self._delta: MessageDelta = NOTHING
        self._every_ms = STREAMED_EVERY_MS if request.stream else UNSTREAMED_EVERY_MS
        self._written_ms = now_ms
        self._first = True
        self.urgent = request.stream or self._stops is not None
        self.due_ms = min(now_ms + self._every_ms, request.deadline_ms)

    def advance(self, chunks: Iterable[TokenChunk], now_ms: int) -> Output | None:
        """Takes in what was sampled; the record that is to be written now, if any.

        Raises `ChunkOutOfOrder`.
        """
        reason = self._take(chunks)
        if reason == "abort":
            return self._interrupted("engine_failed", now_ms)
        if reason is not None:
            return self._completed(reason, now_ms)
        if now_ms >= self.request.deadline_ms:
            return failed(self.request, PAST_DEADLINE, now_ms)
        return self._progressed(now_ms)

    def end(
        self, chunks: Iterable[TokenChunk], reason: str, now_ms: int
    ) -> TurnCompleted | TurnInterrupted:
        """The last record of a turn that is to stop now, with what was sampled and not written."""
        finish = self._take(chunks)
        if finish is not None and finish != "abort":
            return self._completed(finish, now_ms)
        return self._interrupted(reason, now_ms)

    def _interrupted(self, reason: str, now_ms: int) -> TurnInterrupted:
        request = self.request
        return TurnInterrupted(
            session_id=request.session_id,
            turn_id=request.turn_id,
            dispatch=request.dispatch,
            worker=request.worker,
            incarnation=request.incarnation,
            token_offset=self._offset,
            token_ids=self._ids,
            logprobs=self._logprobs,
            spans=tuple(self._spans),
            at_ms=now_ms,
            delta=self._new_delta(),
            reason=reason,
        )

    def _take(self, chunks: Iterable[TokenChunk]) -> FinishReason | None:
        ids, logprobs, reason = [self._ids], [self._logprobs], None
        end = self._offset + len(self._ids) // _TOKEN_BYTES
        for chunk in chunks:
            if chunk.offset != end:
                raise ChunkOutOfOrder(self.request.turn_id, end, chunk.offset)
            end += len(chunk.token_ids) // _TOKEN_BYTES
            ids.append(chunk.token_ids)
            logprobs.append(chunk.logprobs)
            reason = chunk.finish_reason
            for span in chunk.spans:
                self._add_span(span.start, span.version)
        if len(ids) > 1:
            new = b"".join(ids[1:])
            self._ids, self._logprobs = self._ids + new, b"".join(logprobs)
            self._delta = joined(self._delta, self._stream.feed(new))
            if self._stops is not None and self._stops.found_after is not None:
                return self._cut(self._stops.found_after)
        return reason

    def _cut(self, length: int) -> FinishReason:
        """Only the first `length` tokens of the completion belong to it."""
        kept = max(0, length - self._offset) * _TOKEN_BYTES
        self._ids, self._logprobs = self._ids[:kept], self._logprobs[:kept]
        self._spans = [span for span in self._spans if span.start < length]
        return "stop"

    def _add_span(self, start: int, version: int) -> None:
        if not self._spans or self._spans[-1].version_max != version:
            self._spans.append(VersionSpan(start=start, version_min=version, version_max=version))

    def _progressed(self, now_ms: int) -> TurnProgressed | None:
        if now_ms < self.due_ms and not (self._first and self.request.stream and self._ids):
            return None
        self.due_ms = min(now_ms + self._every_ms, self.request.deadline_ms)
        if not self._ids and now_ms < self._written_ms + SILENCE_MS:
            return None
        request, self._written_ms = self.request, now_ms
        if self._ids:
            self._first, self.urgent = False, self._stops is not None
        record = TurnProgressed(
            session_id=request.session_id,
            turn_id=request.turn_id,
            dispatch=request.dispatch,
            worker=request.worker,
            incarnation=request.incarnation,
            token_offset=self._offset,
            token_ids=self._ids,
            logprobs=self._logprobs,
            spans=tuple(self._spans),
            at_ms=now_ms,
            delta=self._new_delta(),
        )
        self._offset += len(self._ids) // _TOKEN_BYTES
        self._ids, self._logprobs, self._delta = b"", b"", NOTHING
        self._spans.clear()
        return record

    def _completed(self, reason: FinishReason, now_ms: int) -> TurnCompleted:
        self._delta = joined(self._delta, self._stream.finish())
        message, request = self._stream.message, self.request
        called = reason == "stop" and message.tool_calls
        return TurnCompleted(
            session_id=request.session_id,
            turn_id=request.turn_id,
            dispatch=request.dispatch,
            worker=request.worker,
            incarnation=request.incarnation,
            token_offset=self._offset,
            token_ids=self._ids,
            logprobs=self._logprobs,
            spans=tuple(self._spans),
            at_ms=now_ms,
            delta=self._new_delta(),
            finish_reason="tool_calls" if called else reason,
            message=message_json(message, request.turn_id),
            well_formed=message.well_formed,
            prompt_length=len(request.prompt_ids) // _TOKEN_BYTES,
            prompt_hash=xxhash.xxh3_128_digest(request.prompt_ids),
        )

    def _new_delta(self) -> bytes | None:
        if not self.request.stream:
            return None
        delta = delta_json(self._delta, self.request.turn_id, self._calls_given)
        self._calls_given += len(self._delta.tool_calls)
        return delta


def unstarted(request: GenerateTurn, reason: str, now_ms: int) -> TurnInterrupted:
    """Hands back a turn that was never given to an engine."""
    return TurnInterrupted(
        session_id=request.session_id,
        turn_id=request.turn_id,
        dispatch=request.dispatch,
        worker=request.worker,
        incarnation=request.incarnation,
        token_offset=len(request.completion_ids) // _TOKEN_BYTES,
        token_ids=b"",
        logprobs=b"",
        at_ms=now_ms,
        reason=reason,
    )
