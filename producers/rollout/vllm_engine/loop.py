"""The vLLM engine's live requests, on its event loop; no other thread touches them.

A pause is a barrier: the server ends all calls, and every stream is read to its end. So all tokens
sampled so far have arrived when `pause` returns. A call to the server lives under one version. Kept
requests continue by a new call with their tokens so far, which recomputes their KV. The versions
that the server reports at the end of each call are compared with the loaded one.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.rollout.engine.contract import FinishReason, PauseMode, TokenChunk
from seamlessflow.producers.rollout.engine.pass_times import StreamTimes
from seamlessflow.producers.rollout.engine.request import last_chunk
from seamlessflow.producers.rollout.engine.thread import EngineState
from seamlessflow.producers.rollout.vllm_engine.client import VllmClient
from seamlessflow.producers.rollout.vllm_engine.protocol import (
    AnswerInvalid,
    RequestRefused,
    TokenEvent,
)
from seamlessflow.producers.rollout.vllm_engine.request import VllmRequest, finish_reason

AGAIN_S = 0.5
"""Time after which a pause is sent again. A call that reached the server just after the first
pause waits there instead of ending."""

_log = logging.getLogger(__name__)


class VllmLoop:
    """The state behind `VllmEngine`. Any thread may read the public attributes, for `health`."""

    def __init__(self, client: VllmClient, version: int, limit: int, capacity: int) -> None:
        self.client = client
        self.times = StreamTimes(capacity)
        self.version = version
        self.limit = limit
        self.live: dict[str, VllmRequest] = {}
        self.streams: dict[str, asyncio.Task[None]] = {}
        self.state = EngineState()
        self.failed_callbacks = 0
        self.sampled_tokens = 0
        self.reused_tokens = 0
        self.busy_s = 0.0
        self._busy_since_s = 0.0
        self._changes = asyncio.Lock()
        """Held during a change of state, so that a resume cannot overtake a pause."""

    def accept(self, request: VllmRequest) -> None:
        """Send a request, or keep it while paused; one whose id is live is ignored."""
        if request.request_id in self.live:
            return
        self.live[request.request_id] = request
        if self.state.error is not None:  # it failed after `submit` had looked
            self._end(request, "abort")
        elif (reason := request.request.finished_before_start(self.limit)) is not None:
            self._end(request, reason)
        elif not self.state.paused:
            self._send(request)

    def abort(self, request_id: str | None) -> None:
        """End one request, or all; unknown ids are ignored."""
        ids = list(self.live) if request_id is None else [request_id]
        for each in ids:
            if each in self.live:
                self._end(self.live[each], "abort")

    async def pause(self, mode: PauseMode) -> None:
        """Stop sampling; when it returns, all tokens sampled so far have been delivered."""
        async with self._changes:
            self.state.require_working("pause")
            self.state.paused = True
            with self._failing():
                await self.client.end_all()
                while self.streams:
                    await asyncio.wait(self.streams.values(), timeout=AGAIN_S)
                    if self.streams:
                        await self.client.end_all()
            self.state.require_working("pause")
            if mode == "abort":
                self.abort(None)

    async def resume(self) -> None:
        """Sample again; kept requests are sent again."""
        async with self._changes:
            self.state.require_awake("resume")
            with self._failing():
                await self.client.resume()
            self.state.paused = False
            for request in self.live.values():
                if request.request_id not in self.streams:
                    self._send(request)

    async def load(self, directory: Path, version: int) -> None:
        """Load checked weights. Fails the engine if the server cannot: it may hold half of them."""
        async with self._changes:
            self.state.require_loadable()
            with self._failing():
                await self.client.load(directory, str(version))
            self.version = version

    async def sleep(self) -> None:
        """Free what the server can free."""
        async with self._changes:
            self.state.require_paused("sleep")
            with self._failing():
                await self.client.sleep()
            self.state.asleep = True

    async def wake(self) -> None:
        """Undo `sleep`; no request is sent before `resume`."""
        async with self._changes:
            self.state.require_working("wake")
            with self._failing():
                await self.client.wake()
            self.state.asleep = False

    async def stop(self) -> None:
        """End all requests, and wait for the connections to be closed."""
        self.state.paused = True
        streams = list(self.streams.values())
        self.abort(None)
        await asyncio.gather(*streams, return_exceptions=True)
        await self.client.close()

    def fail(self, reason: str) -> None:
        """Mark the engine as failed and end all requests; only the first reason counts."""
        if self.state.error is None:
            _log.error("vLLM failed: %s", reason)
            self.state.fail(reason)
            self.abort(None)

    @property
    def busy_seconds(self) -> float:
        """Seconds in which the server had a request to sample."""
        under_way = time.monotonic() - self._busy_since_s if self.streams else 0.0
        return self.busy_s + under_way

    def _send(self, request: VllmRequest) -> None:
        if not self.streams:
            self._busy_since_s = time.monotonic()
            self.times.begin(self._busy_since_s)
        stream = asyncio.get_running_loop().create_task(self._stream(request))
        self.streams[request.request_id] = stream
        stream.add_done_callback(lambda _: self._sent(request, stream))

    def _sent(self, request: VllmRequest, stream: asyncio.Task[None]) -> None:
        # An aborted id may be in use again, by another request with its own stream.
        if self.streams.get(request.request_id) is stream:
            del self.streams[request.request_id]
            if not self.streams:
                self.busy_s += time.monotonic() - self._busy_since_s

    async def _stream(self, request: VllmRequest) -> None:
        """Read one call to its end. Raises nothing: an error ends the request or the engine."""
        version = self.version  # a pause ends this call before another version is loaded
        body = request.next_call(self.limit, f"version {version}", self.client.adapter)
        try:
            async with self.client.generate(body, request.request.sampling.top_logprobs) as answer:
                await self._read(request, version, answer)
        except RequestRefused as error:
            if self._is_live(request):
                self._end(request, "abort", error.reason)
        except SeamlessFlowError as error:
            self.fail(str(error))
        except Exception as error:
            _log.exception("request %s could not be read", request.request_id)
            self.fail(f"{type(error).__name__}: {error}")

    async def _read(
        self, request: VllmRequest, version: int, answer: AsyncIterator[list[TokenEvent]]
    ) -> None:
        sent_s = time.monotonic()
        length = len(request.tokens)
        computed = request.computed
        reason = None
        prefill_s = None
        reused = 0
        async for events in answer:
            now_s = time.monotonic()
            count = sum(event.count for event in events)
            self.sampled_tokens += count
            reused += sum(event.cached_tokens for event in events)
            if prefill_s is None and count:
                prefill_s = self.times.prefilled(now_s - sent_s, len(self.streams))
            self.times.sampled(count, len(self.streams), now_s)
            reason = finish_reason(events, version) or reason
            chunk = request.add_events(events, version)
            if chunk is not None:
                self._deliver(request, chunk)
        self.reused_tokens += reused
        # The server reports only at the end how many prompt tokens' KV it had.
        again = max(0, computed - reused) / max(1, length - reused)
        self.times.passes.add_prefill(prefill_s or 0.0, again)
        if reason is None or (reason == "abort" and not self.state.paused):
            raise AnswerInvalid(f"a stream that ended with {reason}, without an abort or a pause")

    def _deliver(self, request: VllmRequest, chunk: TokenChunk) -> None:
        if not self._is_live(request):
            return
        if chunk.finish_reason is not None:
            del self.live[request.request_id]
        try:
            request.request.on_chunk(chunk)
        except Exception:
            _log.exception("on_chunk of request %s failed", request.request_id)
            self.failed_callbacks += 1
            self.live.pop(request.request_id, None)
            self._cancel(request)

    def _end(self, request: VllmRequest, reason: FinishReason, refused: str = "") -> None:
        self._cancel(request)
        chunk = last_chunk(request.completed, reason)
        self._deliver(request, replace(chunk, refused=refused) if refused else chunk)

    def _cancel(self, request: VllmRequest) -> None:
        """Close the connection, which ends the request in the server."""
        stream = self.streams.get(request.request_id)
        # A callback may have raised within the stream's own task, which then ends by itself.
        if stream is not None and stream is not asyncio.current_task():
            stream.cancel()

    def _is_live(self, request: VllmRequest) -> bool:
        return self.live.get(request.request_id) is request

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail the engine if a call within fails: the server's state is unknown then."""
        try:
            yield
        except SeamlessFlowError as error:
            self.fail(str(error))
            raise
