"""The contract between the rollout process and the engine that samples its tokens.

An engine takes token ids and returns token ids. Each returned id has its log-probability and the
policy version that sampled it. The log-probability is the policy's at the request's temperature:
log-softmax of logits / temperature. A greedy request has temperature 1. Top-p and
top-k change what is sampled, but not these log-probabilities. They cover the whole vocabulary, as
the trainer computes them, unless `EngineFactory.whole_vocabulary` is false. Token ids travel as
little-endian int32 bytes, log-probabilities as little-endian float32 bytes, the form they have on
the log.

Every accepted request ends in exactly one chunk with a finish reason. `on_chunk` is called from the
engine's own thread, in offset order, at most once a pass and request. It must be quick and must not
call the engine's blocking methods. If it raises, that one request ends at once, and it is not
called again. The error is logged and counted in `EngineHealth.failed_callbacks`. All other requests
go on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

MOST_TOP_LOGPROBS = 20
"""OpenAI's limit, and vLLM's default."""

FinishReason = Literal["stop", "length", "abort"]
PauseMode = Literal["keep", "abort"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters. `max_tokens` counts the whole completion, earlier dispatches too.

    Temperature 0 is greedy, top-k 0 is off. A stop token is sampled, reported with its
    log-probability, and ends the completion. With a seed, sampling at a completion offset depends
    only on seed and offset. A continuation on another engine then samples what the first engine
    would have. `top_logprobs` says how many most likely tokens to report beside each sampled one.
    `json_schema` is a schema that the text must follow. `session` and `choice` are for an engine
    that makes its answers up. Together with the prompt's length they name a turn, so that a
    repeated run gets the same answers.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    top_logprobs: int = 0
    json_schema: str | None = None
    session: str = ""
    choice: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}, must be at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}, must be finite and at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, must be above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, must be at least 0")
        if not 0 <= self.top_logprobs <= MOST_TOP_LOGPROBS:
            reason = f"must be at least 0 and at most {MOST_TOP_LOGPROBS}"
            raise ValueError(f"top_logprobs is {self.top_logprobs}, {reason}")


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """A run of completion tokens, from `start` to the next span's start, sampled by `version`."""

    start: int
    version: int


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """One request's new tokens; `offset` and span starts count in its completion.

    `spans` covers exactly this chunk's tokens. The last chunk has a finish reason. It may hold
    no tokens. An abort always holds none: all tokens so far came in earlier chunks. If the request
    asked for them, `top_ids` (int32) and `top_logprobs` (float32) hold `top_logprobs` entries a
    token. They are under the same distribution, most likely first. `refused` comes with an abort.
    It says why the engine cannot do what this request asks for, if it finds that only now.
    """

    offset: int
    token_ids: bytes
    logprobs: bytes
    spans: tuple[ChunkSpan, ...]
    finish_reason: FinishReason | None
    top_ids: bytes = b""
    top_logprobs: bytes = b""
    refused: str = ""


ChunkCallback = Callable[[TokenChunk], None]


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """An engine's snapshot. `error` is set once the engine has failed for good and must be built
    anew.

    - `waiting`: requests that are not sampled yet, and queued calls
    - `kv_rows`: how many sequences' KV fits
    - `reused_tokens`: prompt tokens whose KV was there already
    - `busy_seconds`: time spent in passes
    - `full_batch_seconds`: time that the same tokens would take in full batches
    - `recomputing_seconds`: time spent on keys and values that were computed before
    """

    version: int
    running: int
    waiting: int
    kv_rows: int
    kv_bytes: int
    paused: bool
    asleep: bool
    error: str | None
    failed_callbacks: int
    sampled_tokens: int
    reused_tokens: int
    busy_seconds: float
    full_batch_seconds: float = 0.0
    recomputing_seconds: float = 0.0


class Engine(Protocol):
    """A token sampler. Call its methods from any thread, but none that blocks from `on_chunk`.

    Blocking methods raise `EngineTimeout` at their deadline. Once the engine itself has failed
    (`health().error`), every request has ended with "abort". All methods but `health`, `abort` and
    `close` then raise `EngineStateInvalid`.
    """

    @property
    def logprob_tolerance(self) -> float:
        """Most that two log-probabilities of the same token in the same place may differ.

        It covers rounding, which depends on the element type. A worker serves only with an engine
        that keeps to it.
        """

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        """Queue a request, also while paused. Does not block. A live `request_id` is ignored.

        `completion` holds tokens already sampled elsewhere; only what follows them is emitted.
        `computed` says for how many first prompt tokens some engine computed keys and values
        before. It is only for `EngineHealth.recomputing_seconds`. Raises `RequestInvalid`
        (`PromptTooLong`, `SamplingUnsupported` for what this engine cannot do), or
        `EngineStateInvalid` when failed or closed.
        """

    def abort(self, request_id: str | None) -> None:
        """End a request, or all, with an "abort" chunk. Does not block; unknown ids are ignored."""

    def pause(self, mode: PauseMode) -> None:
        """Block until no pass is running. "abort" ends all requests, "keep" stalls them."""

    def resume(self) -> None:
        """Sample again. Blocks briefly. Raises `EngineStateInvalid` while asleep."""

    def load_weights(self, directory: Path, version: int) -> None:
        """Load a Hugging Face directory's safetensors as policy `version`. Blocks.

        Only while paused (`EngineStateInvalid`), and awake unless `EngineFactory.loads_asleep`. A
        sleeping engine loads them only into the host's memory. Raises `WeightsRejected` with
        nothing changed. Kept requests get their KV recomputed under the new weights before they go
        on. KV from older weights is never used again.
        """

    def sleep(self) -> int:
        """Free KV and the device's copy of the weights. Blocks.

        Return the bytes then free on its device, or on the fullest device if it has several; 0 if
        unknown. Only while paused. Kept requests stay; their KV is recomputed after waking.
        """

    def wake(self) -> None:
        """Bring the weights back to the device. Blocks. Stays paused."""

    def health(self) -> EngineHealth:
        """Return a snapshot. Does not block."""

    def close(self) -> None:
        """End all requests with "abort" and stop the thread. Blocks; may be called twice."""


def logprob_tolerance(dtype: str) -> float:
    """Return the tolerance for an element type: a few rounding units, for a logit around 20.

    An unknown type gets the coarsest type's tolerance.
    """
    return {"float64": 1e-3, "float32": 1e-3, "float16": 0.1}.get(dtype, 0.5)
