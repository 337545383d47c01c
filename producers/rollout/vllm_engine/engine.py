"""The engine for GPUs: a vLLM server in its own process and Python environment, called over HTTP.

The server is started here (or runs already), watched, and ended with the engine. Methods check what
they can in the caller's thread. The rest runs on an event loop (`VllmLoop`). This engine differs
from the others in two ways. On a CPU it refuses seeds. A text under a JSON schema comes in one
chunk, with log-probabilities among the tokens that the schema allows.
"""

import asyncio
import contextlib
import shutil
from pathlib import Path

from seamlessflow.infra.weights.manifest import base_of
from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    PauseMode,
    SamplingParams,
    logprob_tolerance,
)
from seamlessflow.producers.rollout.engine.errors import (
    EngineError,
    EngineStateInvalid,
    WeightsRejected,
)
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.engine.thread import EventLoopThread
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.producers.rollout.vllm_engine.client import ServerFailed, VllmClient
from seamlessflow.producers.rollout.vllm_engine.launch import for_adapters, most_rank
from seamlessflow.producers.rollout.vllm_engine.loop import VllmLoop
from seamlessflow.producers.rollout.vllm_engine.model import (
    adapter_rank,
    keep,
    read_model,
    require_same,
)
from seamlessflow.producers.rollout.vllm_engine.request import VllmRequest
from seamlessflow.producers.rollout.vllm_engine.server import (
    VllmNotStarted,
    VllmServer,
    await_running,
)

_LOOK_S = 0.5
_ASK_EVERY = 10
"""The server's health is asked once in so many looks at its process."""


class VllmEngine:
    """See `Engine` in `producers/rollout/engine/contract.py` for what every method promises."""

    def __init__(
        self, settings: VllmSection, capacity: int, directory: Path, version: int, log_file: Path
    ) -> None:
        """Serve the Hugging Face model in `directory` as policy `version`. Blocks until it does.

        An adapter is served on its base, and later only other adapters for that base. The model's
        files are linked beside the log while the server runs. Raises `VllmNotStarted`,
        `WeightsRejected`.
        """
        self._base = base_of(directory)
        served = directory if self._base is None else Path(self._base.directory)
        model = read_model(served)
        if self._base is not None:
            self._most = most_rank(adapter_rank(directory, model))
            settings = for_adapters(settings, self._most)
        # By default vLLM would load float32 weights in half precision.
        dtype = model.dtype if settings.dtype == "auto" else settings.dtype
        settings = settings.model_copy(update={"dtype": dtype})
        self._settings = settings
        self._capacity = capacity
        self._model = model
        self.server: VllmServer | None = None
        """The child process, or None if the server was not started here."""
        self._kept = log_file.with_suffix(".model")
        if settings.url is None:
            keep(served, self._kept)
            self.server = VllmServer(settings, capacity, self._kept, log_file)
        self._thread = EventLoopThread("vllm-engine", settings.call_timeout_s)
        try:
            if self.server is not None:
                self.server.await_ready()
            elif settings.url is not None:
                await_running(settings.url, settings.start_timeout_s)
            self._loop = self._thread.ask("start", lambda: self._start(directory, version))
        except BaseException:  # also Ctrl-C: no server may be left behind
            self._thread.close(_nothing)
            self._stop_server()
            raise

    @property
    def logprob_tolerance(self) -> float:
        return logprob_tolerance(self._settings.dtype)

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        self._loop.state.require_working("submit")
        seed = sampling.seed or 0
        plain = Request.from_bytes(
            request_id, prompt, completion, sampling, seed, on_chunk, computed
        )
        request = VllmRequest.from_request(plain)
        request.check(self._model.vocabulary, self._loop.limit, self._settings.gpu)
        self._thread.post("submit", lambda: self._loop.accept(request))

    def abort(self, request_id: str | None) -> None:
        with contextlib.suppress(EngineStateInvalid):  # closed: every request has ended
            self._thread.post("abort", lambda: self._loop.abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self._thread.ask("pause", lambda: self._loop.pause(mode))

    def resume(self) -> None:
        self._thread.ask("resume", self._loop.resume)

    def load_weights(self, directory: Path, version: int) -> None:
        self._loop.state.require_loadable()
        if (base := base_of(directory)) != self._base:
            offered, served = (
                f"an adapter of {adapter.directory}" if adapter else "a whole model"
                for adapter in (base, self._base)
            )
            raise WeightsRejected(directory, f"it is {offered}, the server is for {served}")
        if base is None:
            require_same(directory, self._model)
        elif (rank := adapter_rank(directory, self._model)) > self._most:
            reason = f"it has rank {rank}, the server was started for {self._most}"
            raise WeightsRejected(directory, reason)
        self._thread.ask("load_weights", lambda: self._loop.load(directory, version))

    def sleep(self) -> int:
        self._thread.ask("sleep", self._loop.sleep)
        return 0  # not known: the server does not report it

    def wake(self) -> None:
        self._thread.ask("wake", self._loop.wake)

    def health(self) -> EngineHealth:
        loop = self._loop
        running = min(len(loop.streams), self._capacity)
        return EngineHealth(
            version=loop.version,
            running=running,
            waiting=max(0, len(loop.live) - running),
            kv_rows=self._capacity,
            kv_bytes=self._settings.kv_bytes or 0,
            paused=loop.state.paused,
            asleep=loop.state.asleep,
            error=loop.state.error,
            failed_callbacks=loop.failed_callbacks,
            sampled_tokens=loop.sampled_tokens,
            reused_tokens=loop.reused_tokens,
            busy_seconds=loop.busy_seconds,
            full_batch_seconds=loop.times.passes.full_batch_s,
            recomputing_seconds=loop.times.passes.recomputing_s,
        )

    def close(self) -> None:
        try:
            self._thread.close(self._end)
        finally:
            self._stop_server()

    async def _start(self, directory: Path, version: int) -> VllmLoop:
        """Make the server serve the version and sample one token. On the event loop."""
        settings = self._settings
        server = self.server
        url = server.url if server else settings.url or ""
        client = VllmClient(url, settings.call_timeout_s, settings.stall_timeout_s)
        try:
            context = await client.context_length()
            limit = min(context, settings.max_length or context)
            loop = VllmLoop(client, version, limit, self._capacity)
            if server is None:  # it may have served another version, for another process
                await client.take_over()
            if server is None or self._base is not None:
                await client.load(directory, str(version))
                await client.resume()
            await client.label(str(version))
            await client.probe()
        except EngineError as error:
            await client.close()
            if server is None:
                raise VllmNotStarted(f"{url} (rollout.vllm.url): {error}") from error
            raise VllmNotStarted(str(error), server.log_file, server.tail()) from error
        self._watching = asyncio.get_running_loop().create_task(_watch(loop, server))
        return loop

    async def _end(self) -> None:
        self._watching.cancel()
        await self._loop.stop()

    def _stop_server(self) -> None:
        if self.server is not None:
            self.server.stop()
            shutil.rmtree(self._kept, ignore_errors=True)


async def _watch(loop: VllmLoop, server: VllmServer | None) -> None:
    """Fail the engine once its server is lost, also while no request waits for an answer.

    `server` is None if another process started it.
    """
    looks = 0
    while loop.state.error is None:
        await asyncio.sleep(_LOOK_S)
        looks += 1
        if server is not None and (status := server.exit_status) is not None:
            loop.fail(f"it ended with status {status}:\n{server.tail()}")
        elif looks % _ASK_EVERY == 0:
            try:
                await loop.client.health()
            except ServerFailed as error:
                loop.fail(str(error))


async def _nothing() -> None:
    """Do nothing: this ends an event loop on which nothing runs."""
