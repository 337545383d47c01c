"""The thread that owns an engine's state, the state itself, and how other threads reach it.

`post` does not wait; `ask` waits for the result, up to a deadline. Both run commands in call order.
Only this thread touches what belongs to the engine, so that state needs no lock. The torch,
scripted and clock engines have one each, and the vLLM engine's event loop runs in one.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid, EngineTimeout

T = TypeVar("T")
EngineCall = Callable[[], object]


class EngineState:
    """Flags that the engine's own thread changes and any thread reads. `error` is set for good."""

    def __init__(self) -> None:
        self.paused = False
        self.asleep = False
        self.error: str | None = None

    def fail(self, reason: str) -> None:
        """Mark the engine as failed; it stays paused."""
        self.error = reason
        self.paused = True

    def require_working(self, call: str) -> None:
        """Raise `EngineStateInvalid` if the engine has failed. All checks below include this."""
        if self.error is not None:
            raise EngineStateInvalid(call, f"failed ({self.error})")

    def require_awake(self, call: str) -> None:
        """Raise `EngineStateInvalid` also if the engine is asleep."""
        self.require_working(call)
        if self.asleep:
            raise EngineStateInvalid(call, "asleep")

    def require_paused(self, call: str) -> None:
        """Raise `EngineStateInvalid` also if the engine is running, awake or not."""
        self.require_working(call)
        if not self.paused:
            raise EngineStateInvalid(call, "running")

    def require_loadable(self) -> None:
        """Raise `EngineStateInvalid` unless the engine is paused and awake."""
        self.require_paused("load_weights")
        self.require_awake("load_weights")


class CommandQueue:
    """Commands from any thread, for the thread that calls `run`, in the order they came."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[EngineCall] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, command: EngineCall) -> None:
        """Add a command. Does not block."""
        self._queue.put(command)

    def run(self, wait_s: float | None) -> None:
        """Run all commands in the queue. Wait up to `wait_s` for the first; None: no limit."""
        try:
            self._queue.get(block=wait_s != 0, timeout=wait_s)()
            while True:
                self._queue.get_nowait()()
        except queue.Empty:
            return


class EngineThread:
    """A thread that runs from construction until `close`."""

    def __init__(
        self,
        name: str,
        timeout_s: float,
        run: Callable[[], None],
        put: Callable[[EngineCall], object],
    ) -> None:
        """Start the thread on `run`, which must run the commands given to `put`, in that order."""
        self._timeout_s = timeout_s
        self._put = put
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: str, command: EngineCall) -> None:
        """Queue a command; an accepted one always runs. Raises `EngineStateInvalid` once closed."""
        with self._gate:
            if self._closed:
                raise EngineStateInvalid(call, "closed")
            self._put(command)

    def ask(self, call: str, question: Callable[[], T]) -> T:
        """Return what `question` returns, or raise what it raises.

        Raises `EngineTimeout` if it was not run in time.
        """
        future: Future[T] = Future()
        return self.ask_for(future, call, lambda: _answer(future, question))

    def ask_for(self, future: Future[T], call: str, command: EngineCall) -> T:
        """Return what `command` puts into `future`, at once or later. Raises as `ask` does."""
        self._refuse_within(call)
        self.post(call, command)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            # The question itself may have raised a TimeoutError; ours leaves the future undone.
            if future.done():
                raise
            raise EngineTimeout(call, self._timeout_s) from None

    def close(self, last: EngineCall) -> None:
        """Queue `last`, which must end `run`, accept nothing after it, and wait for the thread.

        May be called twice. Raises `EngineStateInvalid` in the thread itself, and `EngineTimeout`.
        """
        self._refuse_within("close")
        with self._gate:
            if not self._closed:
                self._closed = True
                self._put(last)
        self._thread.join(self._timeout_s)
        if self._thread.is_alive():
            raise EngineTimeout("close", self._timeout_s)

    def _refuse_within(self, call: str) -> None:
        # A callback that waits for its own thread would wait until the deadline.
        if threading.current_thread() is self._thread:
            raise EngineStateInvalid(call, "delivering a chunk: on_chunk must not wait for it")


class EventLoopThread:
    """A running event loop, from construction until `close`."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = EngineThread(name, timeout_s, self._run, self._loop.call_soon_threadsafe)

    def post(self, call: str, command: Callable[[], object]) -> None:
        """See `EngineThread.post`."""
        self._thread.post(call, command)

    def ask(self, call: str, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See `EngineThread.ask`; other commands run while the coroutine waits."""
        future: Future[T] = Future()
        return self._thread.ask_for(
            future, call, lambda: self._loop.create_task(_answer_later(future, question()))
        )

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """See `EngineThread.close`; the thread ends when `last` is done."""
        self._thread.close(lambda: self._loop.create_task(self._end(last)))

    async def _end(self, last: Callable[[], Awaitable[None]]) -> None:
        try:
            await last()
        finally:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except Exception as error:  # raised again in the thread that asked
        future.set_exception(error)


async def _answer_later(future: Future[T], question: Coroutine[Any, Any, T]) -> None:
    try:
        future.set_result(await question)
    except Exception as error:  # raised again in the thread that asked
        future.set_exception(error)
