"""The thread of the scripted engine. `ScriptedEngine` posts the other methods to it as commands."""

import logging
import math
import time
from dataclasses import dataclass
from itertools import islice

import numpy as np

from producers.rollout.engine.commands import CommandQueue
from producers.rollout.engine.contract import (
    ChunkCallback,
    FinishReason,
    PauseMode,
    SamplingParams,
    TokenChunk,
    VersionSpan,
)
from producers.rollout.engine.errors import (
    PromptTooLong,
    RequestInvalid,
    no_structured_output,
)
from producers.rollout.engine.state import EngineState
from producers.rollout.scripted_engine.script import Script, logprobs, most_likely
from schemas.tokens import TOKEN_BYTES

STEP_S = 0.005
"""How often tokens come where they have a speed."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class ScriptedRequest:
    """`offset` is how far the completion is, `end` its length, `credit` what time has earned."""

    request_id: str
    sampling: SamplingParams
    on_chunk: ChunkCallback
    offset: int
    end: int
    reason: FinishReason
    credit: float = 0.0


def scripted_request(
    script: Script,
    request_id: str,
    prompt: bytes,
    completion: bytes,
    sampling: SamplingParams,
    on_chunk: ChunkCallback,
    limit: int,
) -> ScriptedRequest:
    """Raises `RequestInvalid`, `PromptTooLong`, `SamplingUnsupported`."""
    if not prompt or len(prompt) % TOKEN_BYTES or len(completion) % TOKEN_BYTES:
        raise RequestInvalid(request_id, "prompt and completion must be whole token ids")
    if sampling.json_schema is not None:
        raise no_structured_output(request_id)
    length, offset = len(prompt) // TOKEN_BYTES, len(completion) // TOKEN_BYTES
    if length + offset > limit:
        raise PromptTooLong(request_id, length + offset, limit)
    end, reason = script.end(length, offset, sampling, limit)
    last = completion[-TOKEN_BYTES:]
    if last and int(np.frombuffer(last, "<i4")[0]) in sampling.stop_token_ids:
        end, reason = offset, "stop"
    return ScriptedRequest(request_id, sampling, on_chunk, offset, end, reason)


class ScriptedLoop:
    """The public attributes may be read from any thread, for `health`.

    The oldest `max_running` of the live requests are running, the others wait.
    """

    def __init__(
        self, script: Script, version: int, max_running: int, commands: CommandQueue
    ) -> None:
        self.version = version
        self.max_running = max_running
        self.live: dict[str, ScriptedRequest] = {}
        self.state = EngineState()
        self.failed_callbacks = self.sampled_tokens = 0
        self.busy_s = 0.0
        self._script = script
        self._commands = commands
        self._stopped = False
        self._stepped_at = time.monotonic()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped:
            try:
                self._commands.run(wait=not self._ready())
                if self._ready():
                    self._step()
            except Exception as error:  # as a real engine's step may end; only a new one helps
                self._fail(error)

    def accept(self, request: ScriptedRequest) -> None:
        if self.state.error is not None:
            self._deliver(request, _end(request, "abort"))
        else:
            self.live.setdefault(request.request_id, request)

    def abort(self, request_id: str | None) -> None:
        for each in list(self.live) if request_id is None else [request_id]:
            if (request := self.live.pop(each, None)) is not None:
                self._deliver(request, _end(request, "abort"))

    def pause(self, mode: PauseMode) -> None:
        self.state.require_working("pause")
        self.state.paused = True
        if mode == "abort":
            self.abort(None)

    def resume(self) -> None:
        self.state.require_awake("resume")
        self.state.paused, self._stepped_at = False, time.monotonic()

    def take_version(self, version: int) -> None:
        self.state.require_loadable()
        self.version = version

    def sleep(self) -> int:
        self.state.require_paused("sleep")
        self.state.asleep = True
        return 0

    def wake(self) -> None:
        self.state.require_working("wake")
        self.state.asleep = False

    def stop(self) -> None:
        self._stopped = True
        self.abort(None)

    def _ready(self) -> bool:
        return bool(self.live) and not self.state.paused and not self._stopped

    def _step(self) -> None:
        started = time.monotonic()
        earned = self._earned(started)
        for request in list(islice(self.live.values(), self.max_running)):
            self._sample(request, earned)
        self.busy_s += time.monotonic() - started
        if self._script.tokens_per_second is not None and self.live:
            time.sleep(STEP_S)

    def _earned(self, now: float) -> float:
        """Tokens that each running request has earned since the last step."""
        speed = self._script.tokens_per_second
        if speed is None:
            return math.inf
        passed, self._stepped_at = now - self._stepped_at, now
        return min(passed, 2 * STEP_S) * speed

    def _sample(self, request: ScriptedRequest, earned: float) -> None:
        request.credit += earned
        start, end = request.offset, int(min(request.offset + request.credit, request.end))
        breaks_at = self._script.breaks_at
        if breaks_at is not None and end > breaks_at:
            raise ArithmeticError(f"scripted to break at token {breaks_at}")
        over = end >= request.end
        if over:
            del self.live[request.request_id]
        if end > start:
            request.offset, request.credit = end, request.credit - (end - start)
            self.sampled_tokens += end - start
            reason = request.reason if over else None
            self._deliver(request, self._chunk(request, start, end, reason))
        elif over:
            self._deliver(request, _end(request, request.reason))

    def _chunk(
        self, request: ScriptedRequest, start: int, end: int, reason: FinishReason | None
    ) -> TokenChunk:
        ids = self._script.tokens(start, end, request.sampling.stop_token_ids)
        count = request.sampling.top_logprobs
        top = most_likely(ids, count) if count else ()
        span = VersionSpan(start, self.version)
        return TokenChunk(start, ids, logprobs(end - start), (span,), reason, *top)

    def _deliver(self, request: ScriptedRequest, chunk: TokenChunk) -> None:
        try:
            request.on_chunk(chunk)
        except Exception:
            _log.exception("on_chunk of request %s failed", request.request_id)
            self.failed_callbacks += 1
            if self.live.get(request.request_id) is request:
                del self.live[request.request_id]

    def _fail(self, error: Exception) -> None:
        _log.error("the scripted engine failed", exc_info=error)
        self.state.fail(f"{type(error).__name__}: {error}")
        self.abort(None)


def _end(request: ScriptedRequest, reason: FinishReason) -> TokenChunk:
    return TokenChunk(request.offset, b"", b"", (), reason)
