"""Base of the engines that sample in a thread of this process: it runs commands between passes.

Public methods belong to `Engine` and may be called from any thread. Methods with an underscore run
in the engine's thread, and only they change its state. A pass that raises ends the engine
(`state.error`). All requests get their "abort" chunk, and only a new engine helps.
"""

import contextlib
import logging
from abc import ABC, abstractmethod

from seamlessflow.producers.rollout.engine.contract import ChunkCallback, PauseMode, TokenChunk
from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid
from seamlessflow.producers.rollout.engine.thread import CommandQueue, EngineState, EngineThread

_log = logging.getLogger(__name__)


class ThreadedEngine(ABC):
    """See `Engine` in `contract.py` for what every public method promises."""

    def __init__(self, name: str, timeout_s: float) -> None:
        """Start the thread: a subclass calls this when its own fields are set."""
        self.state = EngineState()
        self.failed_callbacks = 0
        self._stopped = False
        self._commands = CommandQueue()
        self._thread = EngineThread(name, timeout_s, self._run, self._commands.put)

    def abort(self, request_id: str | None) -> None:
        with contextlib.suppress(EngineStateInvalid):  # closed: every request has ended
            self._thread.post("abort", lambda: self._abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self._thread.ask("pause", lambda: self._pause(mode))

    def resume(self) -> None:
        self._thread.ask("resume", self._resume)

    def sleep(self) -> int:
        return self._thread.ask("sleep", self._sleep)

    def wake(self) -> None:
        self._thread.ask("wake", self._wake)

    def close(self) -> None:
        self._thread.close(self._stop)

    @property
    @abstractmethod
    def _has_work(self) -> bool:
        """True while a request is live."""

    @abstractmethod
    def _advance(self) -> None:
        """Sample the next tokens of the live requests and deliver them."""

    @abstractmethod
    def _abort(self, request_id: str | None) -> None:
        """End one request, or all, with an "abort" chunk; unknown ids are ignored."""

    def _abort_all(self) -> None:
        """End all requests of an engine that has failed or is closed."""
        self._abort(None)

    def _free_memory(self) -> int:
        """Free what sleep frees, if it is held; return the bytes free on the device, 0: unknown."""
        return 0

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._commands.run(self._wait_s())
                if self._ready:
                    self._advance()
            except Exception as error:  # a pass may raise anything, and the thread must go on
                self._fail(error)

    @property
    def _ready(self) -> bool:
        return self._has_work and not self.state.paused and not self._stopped

    def _wait_s(self) -> float | None:
        """Return how long to wait for a call: not at all while there is work, else for ever."""
        return 0 if self._ready else None

    def _pause(self, mode: PauseMode) -> None:
        self.state.require_working("pause")
        self.state.paused = True
        if mode == "abort":
            self._abort(None)

    def _resume(self) -> None:
        self.state.require_awake("resume")
        self.state.paused = False

    def _sleep(self) -> int:
        self.state.require_paused("sleep")
        free = self._free_memory()
        self.state.asleep = True
        return free

    def _wake(self) -> None:
        self.state.require_working("wake")
        self.state.asleep = False

    def _stop(self) -> None:
        self._stopped = True
        self._abort_all()

    def _deliver(self, request_id: str, on_chunk: ChunkCallback, chunk: TokenChunk) -> bool:
        """Return False if the callback raised: the request must end without another call."""
        try:
            on_chunk(chunk)
        except Exception:
            _log.exception("on_chunk of request %s failed", request_id)
            self.failed_callbacks += 1
            return False
        return True

    def _fail(self, error: Exception) -> None:
        _log.error("the engine failed", exc_info=error)
        self.state.fail(f"{type(error).__name__}: {error}")
        self._abort_all()
