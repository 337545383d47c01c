"""An event loop in a thread of its own, and the way into it from other threads.

`post` does not wait, `ask` waits for the result up to a deadline; both begin in the order they were
called. What they are given is alone in touching what belongs to that thread.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from producers.rollout.engine_errors import EngineStateInvalid, EngineTimeout

T = TypeVar("T")


class EventLoopThread:
    """Runs from construction until `close`."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: str, command: Callable[[], object]) -> None:
        """Raises `EngineStateInvalid` once closed: what is accepted is always run."""
        with self._gate:
            if self._closed:
                raise EngineStateInvalid(call, "closed")
            self._loop.call_soon_threadsafe(command)

    def ask(self, call: str, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `question`, or what it raised; `EngineTimeout` if not done in time."""
        if threading.current_thread() is self._thread:
            raise EngineStateInvalid(call, "delivering a chunk: on_chunk must not wait for it")
        future: Future[T] = Future()
        self.post(call, lambda: self._loop.create_task(_answer(future, question())))
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            if future.done():
                raise
            raise EngineTimeout(call, self._timeout_s) from None

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Accepts nothing after `last`, and ends the thread when that is done.

        May be called twice. Raises `EngineStateInvalid` in the thread itself, and `EngineTimeout`.
        """
        if threading.current_thread() is self._thread:
            raise EngineStateInvalid("close", "delivering a chunk: on_chunk must not wait for it")
        with self._gate:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end(last)))
        self._thread.join(self._timeout_s)
        if self._thread.is_alive():
            raise EngineTimeout("close", self._timeout_s)

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


async def _answer(future: Future[T], question: Coroutine[Any, Any, T]) -> None:
    try:
        future.set_result(await question)
    except Exception as error:  # handed to the thread that asked
        future.set_exception(error)
