"""An engine without a model: answers by a `Script`, at once or at a set speed.

For benchmarks of everything around the engine, and for tests. It keeps the promises of
`Engine` and passes the same contract tests as the torch engine; only the
tokens mean nothing.
"""

import contextlib
from pathlib import Path

from producers.rollout.engine.commands import CommandQueue
from producers.rollout.engine.contract import ChunkCallback, EngineHealth, PauseMode, SamplingParams
from producers.rollout.engine.errors import EngineStateInvalid
from producers.rollout.engine.thread import EngineThread
from producers.rollout.scripted_engine.loop import ScriptedLoop, scripted_request
from producers.rollout.scripted_engine.script import Script

DEADLINE_S = 30.0


class ScriptedEngine:
    """See `producers.rollout.engine.contract.Engine` for what every method promises."""

    def __init__(
        self, script: Script, version: int = 0, max_length: int = 2**31, max_running: int = 1024
    ) -> None:
        self._script = script
        self._max_length = max_length
        self._commands = CommandQueue()
        self._loop = ScriptedLoop(script, version, max_running, self._commands)
        self._thread = EngineThread(
            "scripted-engine", DEADLINE_S, self._loop.run, self._commands.put
        )

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
        self._loop.state.require_working("submit")
        request = scripted_request(
            self._script, request_id, prompt, completion, sampling, on_chunk, self._max_length
        )
        self._thread.post("submit", lambda: self._loop.accept(request))

    def abort(self, request_id: str | None) -> None:
        with contextlib.suppress(EngineStateInvalid):  # closed: every request has ended
            self._thread.post("abort", lambda: self._loop.abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self._thread.ask("pause", lambda: self._loop.pause(mode))

    def resume(self) -> None:
        self._thread.ask("resume", self._loop.resume)

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", lambda: self._loop.take_version(version))

    def sleep(self) -> int:
        return self._thread.ask("sleep", self._loop.sleep)

    def wake(self) -> None:
        self._thread.ask("wake", self._loop.wake)

    def health(self) -> EngineHealth:
        loop = self._loop
        return EngineHealth(
            version=loop.version,
            running=min(len(loop.live), loop.max_running),
            waiting=max(0, len(loop.live) - loop.max_running) + len(self._commands),
            kv_slots=loop.max_running,
            kv_bytes=0,
            paused=loop.state.paused,
            asleep=loop.state.asleep,
            error=loop.state.error,
            failed_callbacks=loop.failed_callbacks,
            sampled_tokens=loop.sampled_tokens,
            reused_tokens=0,
            busy_seconds=loop.busy_s,
        )

    def close(self) -> None:
        self._thread.close(self._loop.stop)
