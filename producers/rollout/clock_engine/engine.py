"""An engine without a model that takes as long as modelled devices would, for rehearsals.

Its thread sleeps until the next event in `batch.py`, or until a call. The device model gives the
times. A thread that wakes late delivers late but loses no time, since each event keeps its own.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.producers.rollout.clock_engine.answers import Answers
from seamlessflow.producers.rollout.clock_engine.batch import ClockBatch
from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    PauseMode,
    SamplingParams,
)
from seamlessflow.producers.rollout.engine.request import Request, RequestChunk, last_chunk
from seamlessflow.producers.rollout.engine.threaded_engine import ThreadedEngine

DEADLINE_S = 30.0
_TOKENS = 2**31 - 1
"""Token ids below this are accepted: the vocabulary is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockEngineSettings:
    """The engine's settings. `rates` are scaled; their rows are the most turns at once.

    `token_bytes`: a token's KV. `memory_bytes`: a device's memory. A running turn delivers its
    tokens every `report_s`. `max_length`: the context limit.
    """

    rates: Rates
    token_bytes: float = 0
    memory_bytes: int = 0
    report_s: float = 0.5
    max_length: int = 2**31


class ClockEngine(ThreadedEngine):
    """See `Engine` in `producers/rollout/engine/contract.py` for what every method promises."""

    def __init__(self, settings: ClockEngineSettings, answers: Answers, version: int = 0) -> None:
        self._settings = settings
        self._batch = ClockBatch(
            settings.rates, answers, version, settings.max_length, settings.report_s
        )
        self._closing = threading.Event()
        self._resume_batch()
        super().__init__("clock-engine", DEADLINE_S)

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
        seed = sampling.seed or 0
        request = Request.from_bytes(
            request_id, prompt, completion, sampling, seed, on_chunk, computed
        )
        request.check(_TOKENS, self._settings.max_length)
        self._thread.post("submit", lambda: self._accept(request))

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", lambda: self.state.require_paused("load_weights"))
        self._spend(self._settings.rates.load_s)
        self._thread.ask("load_weights", lambda: self._take_version(version))

    def sleep(self) -> int:
        self._thread.ask("sleep", lambda: self.state.require_paused("sleep"))
        if not self.state.asleep:
            self._spend(self._settings.rates.sleep_s)
        return super().sleep()

    def wake(self) -> None:
        if self.state.asleep:
            self._spend(self._settings.rates.wake_s)
        super().wake()

    def close(self) -> None:
        self._closing.set()
        super().close()

    def health(self) -> EngineHealth:
        state = self._batch.state
        clock = state.at(time.monotonic())
        return EngineHealth(
            version=self._batch.version,
            running=state.running,
            waiting=state.waiting + len(self._commands),
            kv_rows=self._settings.rates.rows,
            kv_bytes=0
            if self.state.asleep
            else round(state.kv_tokens * self._settings.token_bytes),
            paused=self.state.paused,
            asleep=self.state.asleep,
            error=self.state.error,
            failed_callbacks=self.failed_callbacks,
            sampled_tokens=round(clock.tokens),
            reused_tokens=state.reused,
            busy_seconds=clock.busy_s,
            full_batch_seconds=clock.full_batch_s,
            recomputing_seconds=clock.recomputing_s,
        )

    @property
    def _has_work(self) -> bool:
        return self._batch.state.next_s < inf

    def _wait_s(self) -> float | None:
        next_s = self._batch.state.next_s
        return max(0.0, next_s - time.monotonic()) if self._ready else None

    def _advance(self) -> None:
        self._emit(self._batch.advance(time.monotonic()))

    def _abort(self, request_id: str | None) -> None:
        self._emit(self._batch.abort(request_id, time.monotonic()))

    def _abort_all(self) -> None:
        self._emit(self._batch.give_up())

    def _accept(self, request: Request) -> None:
        if self.state.error is not None:  # it failed after `submit` had looked
            self._emit([(request, last_chunk(request.completed, "abort"))])
        else:
            self._emit(self._batch.add(request, time.monotonic()))

    def _pause(self, mode: PauseMode) -> None:
        self.state.require_working("pause")
        self._emit(self._batch.pause(time.monotonic()))
        super()._pause(mode)

    def _resume(self) -> None:
        super()._resume()
        self._resume_batch()

    def _resume_batch(self) -> None:
        self._batch.resume(time.monotonic())

    def _take_version(self, version: int) -> None:
        self.state.require_paused("load_weights")
        self._batch.version = version
        self._batch.forget()

    def _free_memory(self) -> int:
        self._batch.forget()
        return self._settings.memory_bytes

    def _emit(self, emissions: Iterable[RequestChunk]) -> None:
        broken = set()
        for request, chunk in emissions:
            name = request.request_id
            if name not in broken and not self._deliver(name, request.on_chunk, chunk):
                broken.add(name)
        for name in broken:
            self._batch.drop(name)

    def _spend(self, seconds: float) -> None:
        """Let so much time pass in the calling thread, or less if the engine is closed."""
        self._closing.wait(seconds)
