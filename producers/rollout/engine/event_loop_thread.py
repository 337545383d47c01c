"""An event loop in its own thread, entered from other threads like any `EngineThread`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from seamlessflow.producers.rollout.engine.thread import EngineThread

T = TypeVar("T")


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
            future, call, lambda: self._loop.create_task(_answer(future, question()))
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


async def _answer(future: Future[T], question: Coroutine[Any, Any, T]) -> None:
    try:
        future.set_result(await question)
    except Exception as error:  # raised again in the thread that asked
        future.set_exception(error)
