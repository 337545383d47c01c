"""One dispatch under way: its sampling; an engine's chunks go in, records for `sessions` come out.

`Dispatch` is pure: `advance` returns at most one record a call. A dispatch's offsets are
contiguous, and nothing comes after `TurnCompleted`, `TurnInterrupted` or `TurnFailed`.
`LiveDispatch` is a dispatch as the engine's thread and the main loop share it. Called by
`serving.py`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import xxhash

from seamlessflow.infra.rendering.completion import MessageStream
from seamlessflow.infra.telemetry.tracing import Span
from seamlessflow.producers.rollout.control.controlled import ControlledTurn, TokenRows
from seamlessflow.producers.rollout.engine.contract import FinishReason, SamplingParams, TokenChunk
from seamlessflow.producers.rollout.turns.message import TurnMessage, message_json
from seamlessflow.producers.rollout.turns.refusal import (
    PAST_DEADLINE,
    TurnFields,
    failed,
    turn_fields,
    unsupported_value,
)
from seamlessflow.producers.rollout.turns.unwritten import Unwritten
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import Headers

STREAMED_EVERY_MS = 100
UNSTREAMED_EVERY_MS = 2_000
SILENCE_MS = 5_000
"""After so long without a record, an empty `TurnProgressed` shows that the turn is not lost."""

DispatchOutput = r.TurnProgressed | r.TurnCompleted | r.TurnInterrupted | r.TurnFailed


class _TokenFields(TurnFields):
    token_offset: int
    token_ids: bytes
    logprobs: bytes
    spans: tuple[r.VersionSpan, ...]
    tensors: tuple[r.TokenTensor, ...]
    delta: bytes | None


class _ControlFields(TypedDict, total=False):
    control: str
    control_at: int
    control_ends: str
    control_error: str


class Dispatch:
    """A dispatch under way. Call `advance` at `due_ms` at the latest, even without a chunk.

    While `urgent`, call it for every chunk. A streamed turn's first chunk is urgent. If the text or
    a rule may end the turn, all chunks are urgent.
    """

    def __init__(
        self,
        request: r.GenerateTurn,
        stream: MessageStream,
        now_ms: int,
        ends: Collection[int] = (),
        control: ControlledTurn | None = None,
    ) -> None:
        """Begin. `stream` parses from the prompt's prefill on; tokens in `ends` end a turn."""
        self.request = request
        self._message = TurnMessage(request, stream, ends)
        self._control = control
        self._reported = reported_logprobs(request, control)
        self._unwritten = Unwritten(
            request.turn_id,
            len(request.completion_ids) // TOKEN_BYTES,
            request.sampling.top_logprobs,
            self._reported,
        )
        self._every_ms = STREAMED_EVERY_MS if request.stream else UNSTREAMED_EVERY_MS
        self._written_ms = now_ms
        self._first = True
        self._refused = ""
        self._stopped = False
        """True once the rule's verdict ended the turn."""
        self.urgent = request.stream or self._may_end
        self.due_ms = min(now_ms + self._every_ms, request.deadline_ms)

    def advance(self, chunks: Iterable[TokenChunk], now_ms: int) -> DispatchOutput | None:
        """Add sampled tokens; return the record to write now, or None.

        Raises `ChunkOutOfOrder`, `ChunkIncomplete`.
        """
        reason = self._add(chunks)
        if reason == "abort":
            if self._refused:
                return failed(self.request, unsupported_value(self._refused), now_ms)
            return self._interrupted("engine_failed", now_ms)
        if reason is not None:
            return self._completed(reason, now_ms)
        if now_ms >= self.request.deadline_ms:
            return failed(self.request, PAST_DEADLINE, now_ms)
        return self._progressed(now_ms)

    def end(
        self, chunks: Iterable[TokenChunk], reason: str, now_ms: int
    ) -> r.TurnCompleted | r.TurnInterrupted:
        """Stop the dispatch; return its last record, with all tokens not yet written."""
        # It may be finished already: then its completion is worth more than a new dispatch.
        finish = self._add(chunks)
        if finish is not None and finish != "abort":
            return self._completed(finish, now_ms)
        return self._interrupted(reason, now_ms)

    @property
    def _may_end(self) -> bool:
        controlled = self._control is not None and not self._control.exempt
        return controlled or self._message.may_end

    def _interrupted(self, reason: str, now_ms: int) -> r.TurnInterrupted:
        return r.TurnInterrupted(
            **self._new_fields(now_ms), reason=reason, control_state=self._control_state
        )

    def _add(self, chunks: Iterable[TokenChunk]) -> FinishReason | None:
        new = list(chunks)
        if not new:
            return None
        self._refused = new[-1].refused
        begin = self._unwritten.end
        ids = self._unwritten.add(new)
        stopped_at = self._verdict_at(new, ids, begin)
        if stopped_at is not None:
            ids = ids[: (stopped_at - begin) * TOKEN_BYTES]
        # The text comes first: at the verdict's token it may end the turn by itself.
        end = self._message.feed(ids)
        if end is not None:
            self._unwritten.cut(end)
            return "stop"
        if stopped_at is None:
            return new[-1].finish_reason
        self._unwritten.cut(stopped_at)
        self._stopped = True
        return "length"

    def _verdict_at(self, new: Sequence[TokenChunk], ids: bytes, begin: int) -> int | None:
        """Show new tokens to the rule; return the length at which its verdict ends the turn."""
        control = self._control
        if control is None or not ids:
            return None
        logprobs = b"".join([chunk.logprobs for chunk in new])
        likeliest = b"".join([chunk.top_logprobs for chunk in new])
        control.feed(TokenRows(ids, logprobs, likeliest, self._reported), begin)
        return None if control.verdict is None or control.exempt else control.verdict.at

    def _progressed(self, now_ms: int) -> r.TurnProgressed | None:
        new = self._unwritten
        # The first token of a streamed turn does not wait: the agent measures the time to it.
        if now_ms < self.due_ms and not (self._first and self.request.stream and new.ids):
            return None
        self.due_ms = min(now_ms + self._every_ms, self.request.deadline_ms)
        if not new.ids and now_ms < self._written_ms + SILENCE_MS:
            return None
        self._written_ms = now_ms
        if new.ids:
            self._first = False
            self.urgent = self._may_end
        record = r.TurnProgressed(**self._new_fields(now_ms), control_state=self._control_state)
        new.clear()
        return record

    def _completed(self, reason: FinishReason, now_ms: int) -> r.TurnCompleted:
        message = self._message.finish()
        request = self.request
        if self._message.stop_sequence is not None:
            reason = "stop"  # found only now, in text that was held back
            self._stopped = False
        called = reason == "stop" and message.tool_calls
        return r.TurnCompleted(
            **self._new_fields(now_ms),
            finish_reason="tool_calls" if called else reason,
            message=message_json(message, request.turn_id),
            well_formed=message.well_formed,
            prompt_length=len(request.prompt_ids) // TOKEN_BYTES,
            prompt_hash=xxhash.xxh3_128_digest(request.prompt_ids),
            stop_sequence=self._message.stop_sequence,
            reasoning_tokens=message.reasoning_tokens,
            **self._control_fields(),
        )

    @property
    def _control_state(self) -> bytes | None:
        return None if self._control is None else self._control.state

    def _control_fields(self) -> _ControlFields:
        control = self._control
        if control is None:
            return {}
        verdict = control.verdict
        # The turn of an exempt session goes on; its text may have ended it before the verdict.
        counts = self._stopped or (control.exempt and verdict is not None)
        if verdict is None or not counts or verdict.at > self._unwritten.end:
            return {"control_error": control.error}
        return {
            "control": f"{control.name}: {verdict.reason}",
            "control_at": verdict.at,
            "control_ends": verdict.ends,
        }

    def _new_fields(self, now_ms: int) -> _TokenFields:
        """Return the fields that all records with tokens share; the delta is taken only once."""
        new = self._unwritten
        return {
            **turn_fields(self.request, now_ms),
            "token_offset": new.offset,
            "token_ids": new.ids,
            "logprobs": new.logprobs,
            "spans": tuple(new.spans),
            "tensors": new.tensors,
            "delta": self._message.take_delta() if self.request.stream else None,
        }


@dataclass(eq=False, slots=True)
class LiveDispatch:
    """A dispatch and its chunks. The engine's thread calls `on_chunk`, the main loop all else.

    Chunks that are not urgent wait here until the dispatch is due. So not every token wakes the
    main loop.
    """

    dispatch: Dispatch
    headers: Headers
    span: Span
    _wake: Callable[["LiveDispatch"], None]
    request_id: str = field(init=False)
    ended: bool = False
    """True once the last record is written."""
    finished: bool = False
    """True once the engine has delivered the last chunk."""
    _chunks: deque[TokenChunk] = field(default_factory=deque)

    def __post_init__(self) -> None:
        request = self.dispatch.request
        self.request_id = f"{request.turn_id}/{request.dispatch}"

    def on_chunk(self, chunk: TokenChunk) -> None:
        """Keep a chunk; wake the main loop if it must act now. On the engine's thread."""
        # Appended before the wake-up: the main loop may run at once. A deque needs no lock.
        self._chunks.append(chunk)
        if chunk.finish_reason is not None:
            self.finished = True
            self._wake(self)
        elif self.dispatch.urgent:
            self._wake(self)

    def new_chunks(self) -> Iterator[TokenChunk]:
        """Yield the chunks since the last call."""
        while self._chunks:
            yield self._chunks.popleft()


def reported_logprobs(request: r.GenerateTurn, control: ControlledTurn | None) -> int:
    """Return how many likeliest tokens the engine has to report: for the log, or for a rule."""
    asked = request.sampling.top_logprobs
    return asked if control is None else max(asked, control.top)


def sampling_params(
    request: r.GenerateTurn,
    stop_token_ids: Sequence[int],
    max_context: int,
    control: ControlledTurn | None = None,
) -> SamplingParams:
    """Return the engine's parameters; `max_context` bounds prompt and completion together.

    The prompt must leave room for a token. Raises `ValueError` for values outside their range.
    """
    asked = request.sampling
    seed = request.seed
    if seed is None and asked.seed is not None:
        seed = turn_seed(request, asked.seed)
    room = max_context - len(request.prompt_ids) // TOKEN_BYTES
    return SamplingParams(
        max_tokens=room if asked.max_tokens is None else min(asked.max_tokens, room),
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        top_k=max(asked.top_k or 0, 0),
        stop_token_ids=tuple(stop_token_ids),
        seed=seed,
        top_logprobs=reported_logprobs(request, control),
        json_schema=asked.json_schema,
        session=session_name(request.session_id),
        choice=request.choice,
    )


def turn_seed(request: r.GenerateTurn, seed: int) -> int:
    """Return a different seed for each session, turn, choice and offset to continue from.

    With one seed for all, samples of the same prompt would be equal.
    """
    offset = len(request.completion_ids) // TOKEN_BYTES
    parts = (seed, request.session_id, request.turn_id, request.choice, offset)
    digest: int = xxhash.xxh3_64_intdigest(repr(parts).encode())
    return digest >> 1  # engines take signed numbers
