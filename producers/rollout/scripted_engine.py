"""An engine without a model: the same answer to every prompt, at once or at a set speed.

It is for benchmarks of everything around the engine, for tests, and for an environment's tryout,
which chooses the answer to each request. It keeps the promises of `Engine` and passes the torch
engine's contract tests; only the tokens mean nothing.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    FinishReason,
    SamplingParams,
    TokenChunk,
)
from seamlessflow.producers.rollout.engine.errors import (
    PromptTooLong,
    RequestInvalid,
    no_structured_output,
)
from seamlessflow.producers.rollout.engine.made_up import made_up_chunk
from seamlessflow.producers.rollout.engine.request import last_chunk
from seamlessflow.producers.rollout.engine.threaded_engine import ThreadedEngine
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack

DEADLINE_S = 30.0

PASS_S = 0.005
"""Time between two passes if the script has a speed."""


@dataclass(frozen=True)
class Script:
    """A pattern (int32 ids, at least one) repeated to `length` tokens, then a stop token.

    If a request has no stop token, the pattern goes on to its `max_tokens`. `tokens_per_second` is
    one request's speed, None for the whole answer at once.
    """

    pattern: bytes
    length: int
    tokens_per_second: float | None = None
    _text: bytes = field(init=False, repr=False)
    _ids: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.pattern or len(self.pattern) % TOKEN_BYTES:
            raise ValueError(f"the pattern has {len(self.pattern)} bytes, no run of token ids")
        object.__setattr__(self, "_text", self._repeated(self.length))
        object.__setattr__(self, "_ids", frozenset(np.frombuffer(self._text, "<i4").tolist()))

    def end(
        self, prompt_length: int, offset: int, sampling: SamplingParams, limit: int
    ) -> tuple[int, FinishReason]:
        """Return the length of a completion that continues from `offset`, and why it ends there.

        `limit`: most tokens in prompt and completion together.
        """
        room = min(sampling.max_tokens, limit - prompt_length)
        stop = self._first_stop(offset, sampling.stop_token_ids)
        return (stop, "stop") if stop is not None and stop <= room else (room, "length")

    def tokens(self, start: int, end: int, stop_token_ids: tuple[int, ...]) -> bytes:
        """Return the completion's ids from `start` to `end`."""
        if end <= self.length:
            return self._text[start * TOKEN_BYTES : end * TOKEN_BYTES]
        if stop_token_ids:
            return self._text[start * TOKEN_BYTES :] + pack(stop_token_ids[:1])
        return self._repeated(end)[start * TOKEN_BYTES :]

    def _first_stop(self, offset: int, stop_token_ids: tuple[int, ...]) -> int | None:
        """Return the completion's length up to and with its first stop token, or None."""
        if not stop_token_ids:
            return None
        if not self._ids.isdisjoint(stop_token_ids):
            tokens = np.frombuffer(self._text, "<i4")[offset:]
            places = np.flatnonzero(np.isin(tokens, stop_token_ids))
            if places.size:
                return offset + int(places[0]) + 1
        return self.length + 1

    def _repeated(self, length: int) -> bytes:
        size = length * TOKEN_BYTES
        return (self.pattern * (size // len(self.pattern) + 1))[:size]


ChooseScript = Callable[[bytes, SamplingParams], Script]
"""Returns a request's script, always the same for the same request; called in any thread."""


@dataclass(eq=False, slots=True)
class ScriptedRequest:
    """A live request; `offset` is its completion's length so far, `end` the length in the end.

    `credit`: tokens that the time passed has earned and that were not sent yet.
    """

    request_id: str
    script: Script
    sampling: SamplingParams
    on_chunk: ChunkCallback
    offset: int
    end: int
    reason: FinishReason
    credit: float = 0.0


class ScriptedEngine(ThreadedEngine):
    """Engine without a model. The oldest `max_running` live requests run, the others wait."""

    def __init__(
        self,
        script: Script,
        version: int = 0,
        max_length: int = 2**31,
        max_running: int = 1024,
        choose: ChooseScript | None = None,
    ) -> None:
        """`choose`: gives the answers instead of `script`, also to a request with a schema."""
        self._script = script
        self._choose = choose
        self._version = version
        self._max_length = max_length
        self._max_running = max_running
        self._live: dict[str, ScriptedRequest] = {}
        self._sampled_tokens = 0
        self._busy_s = 0.0
        self._full_batch_s = 0.0
        self._advanced_at = time.monotonic()
        super().__init__("scripted-engine", DEADLINE_S)

    @property
    def logprob_tolerance(self) -> float:
        return 0.0

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        self.state.require_working("submit")
        if not prompt or len(prompt) % TOKEN_BYTES or len(completion) % TOKEN_BYTES:
            raise RequestInvalid(request_id, "prompt and completion must be whole token ids")
        if sampling.json_schema is not None and self._choose is None:
            raise no_structured_output(request_id)
        length = len(prompt) // TOKEN_BYTES
        offset = len(completion) // TOKEN_BYTES
        if length + offset > self._max_length:
            raise PromptTooLong(request_id, length + offset, self._max_length)
        script = self._script if self._choose is None else self._choose(prompt, sampling)
        end, reason = script.end(length, offset, sampling, self._max_length)
        last = completion[-TOKEN_BYTES:]
        if last and int(np.frombuffer(last, "<i4")[0]) in sampling.stop_token_ids:
            end = offset
            reason = "stop"
        request = ScriptedRequest(request_id, script, sampling, on_chunk, offset, end, reason)
        self._thread.post("submit", lambda: self._accept(request))

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", lambda: self._take_version(version))

    def health(self) -> EngineHealth:
        return EngineHealth(
            version=self._version,
            running=min(len(self._live), self._max_running),
            waiting=max(0, len(self._live) - self._max_running) + len(self._commands),
            kv_rows=self._max_running,
            kv_bytes=0,
            paused=self.state.paused,
            asleep=self.state.asleep,
            error=self.state.error,
            failed_callbacks=self.failed_callbacks,
            sampled_tokens=self._sampled_tokens,
            reused_tokens=0,
            busy_seconds=self._busy_s,
            full_batch_seconds=self._full_batch_s,
        )

    @property
    def _has_work(self) -> bool:
        return bool(self._live)

    def _advance(self) -> None:
        started = time.monotonic()
        earned = self._earned(started)
        running = list(islice(self._live.values(), self._max_running))
        for request in running:
            self._sample(request, earned)
        self._busy_s += time.monotonic() - started
        if self._script.tokens_per_second is not None and self._live:
            time.sleep(PASS_S)
        # A pass takes as long for one request as for all that can run.
        self._full_batch_s += (time.monotonic() - started) * len(running) / self._max_running

    def _abort(self, request_id: str | None) -> None:
        for each in list(self._live) if request_id is None else [request_id]:
            if (request := self._live.pop(each, None)) is not None:
                self._send(request, last_chunk(request.offset, "abort"))

    def _accept(self, request: ScriptedRequest) -> None:
        if self.state.error is not None:  # it failed after `submit` had looked
            self._send(request, last_chunk(request.offset, "abort"))
        else:
            self._live.setdefault(request.request_id, request)

    def _resume(self) -> None:
        super()._resume()
        self._advanced_at = time.monotonic()

    def _take_version(self, version: int) -> None:
        self.state.require_paused("load_weights")
        self._version = version

    def _earned(self, now: float) -> float:
        """Return how many tokens each running request has earned since the last pass."""
        speed = self._script.tokens_per_second
        if speed is None:
            return math.inf
        passed = now - self._advanced_at
        self._advanced_at = now
        return min(passed, 2 * PASS_S) * speed  # no burst after the thread was held up

    def _sample(self, request: ScriptedRequest, earned: float) -> None:
        request.credit += earned
        start = request.offset
        end = int(min(request.offset + request.credit, request.end))
        over = end >= request.end
        if end > start:
            chunk = self._chunk(request, start, end, request.reason if over else None)
            request.offset = end
            request.credit = request.credit - (end - start)
            self._sampled_tokens += end - start
        elif over:
            chunk = last_chunk(start, request.reason)
        else:
            return
        if over:
            del self._live[request.request_id]
        self._send(request, chunk)

    def _chunk(
        self, request: ScriptedRequest, start: int, end: int, reason: FinishReason | None
    ) -> TokenChunk:
        ids = request.script.tokens(start, end, request.sampling.stop_token_ids)
        return made_up_chunk(start, ids, request.sampling, self._version, reason)

    def _send(self, request: ScriptedRequest, chunk: TokenChunk) -> None:
        delivered = self._deliver(request.request_id, request.on_chunk, chunk)
        if not delivered and self._live.get(request.request_id) is request:
            del self._live[request.request_id]
