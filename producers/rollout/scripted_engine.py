"""An engine without a model: answers by a `Script`, at once or at a set speed.

For benchmarks of everything around the engine, and for tests. It keeps the promises of
`producers.rollout.engine.Engine` and passes the same contract tests as the torch engine; only the
tokens mean nothing.
"""

import contextlib
import threading
from pathlib import Path

from producers.rollout.commands import CommandQueue
from producers.rollout.engine import ChunkCallback, EngineHealth, PauseMode, SamplingParams
from producers.rollout.engine_errors import EngineStateInvalid, EngineTimeout
from producers.rollout.script import Script
from producers.rollout.scripted_loop import ScriptedLoop, scripted_request

DEADLINE_S = 30.0


class ScriptedEngine:
    """See `producers.rollout.engine.Engine` for what every method promises."""

    def __init__(
        self, script: Script, version: int = 0, max_length: int = 2**31, max_running: int = 1024
    ) -> None:
        self._script = script
        self._max_length = max_length
        self._commands = CommandQueue(DEADLINE_S)
        self._loop = ScriptedLoop(script, version, max_running, self._commands)
        self._thread = threading.Thread(target=self._loop.run, name="scripted-engine", daemon=True)
        self._thread.start()

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
    ) -> None:
        if self._loop.error is not None:
            raise EngineStateInvalid("submit", f"failed ({self._loop.error})")
        request = scripted_request(
            self._script, request_id, prompt, completion, sampling, on_chunk, self._max_length
        )
        self._commands.post("submit", lambda: self._loop.accept(request))

    def abort(self, request_id: str | None) -> None:
        with contextlib.suppress(EngineStateInvalid):  # closed: every request has ended
            self._commands.post("abort", lambda: self._loop.abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self._commands.ask("pause", lambda: self._loop.pause(mode))

    def resume(self) -> None:
        self._commands.ask("resume", self._loop.resume)

    def load_weights(self, directory: Path, version: int) -> None:
        self._commands.ask("load_weights", lambda: self._loop.take_version(version))

    def sleep(self) -> int:
        return self._commands.ask("sleep", self._loop.sleep)

    def wake(self) -> None:
        self._commands.ask("wake", self._loop.wake)

    def health(self) -> EngineHealth:
        loop = self._loop
        return EngineHealth(
            version=loop.version,
            running=min(len(loop.live), loop.max_running),
            waiting=max(0, len(loop.live) - loop.max_running) + len(self._commands),
            kv_slots=loop.max_running,
            kv_bytes=0,
            paused=loop.paused,
            asleep=loop.asleep,
            error=loop.error,
            failed_callbacks=loop.failed_callbacks,
            sampled_tokens=loop.sampled_tokens,
            reused_tokens=0,
            busy_seconds=loop.busy_s,
        )

    def close(self) -> None:
        if threading.current_thread() is self._thread:
            raise EngineStateInvalid("close", "delivering a chunk: on_chunk must not wait for it")
        self._commands.close(self._loop.stop)
        self._thread.join(DEADLINE_S)
        if self._thread.is_alive():
            raise EngineTimeout("close", DEADLINE_S)
