"""The way into a thread that owns its state: commands, run one at a time, in the order they came.

`post` does not wait, `ask` waits for the result up to a deadline. Nothing else is shared with the
thread, so what a command touches needs no lock.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from producers.rollout.engine_errors import EngineStateInvalid, EngineTimeout

T = TypeVar("T")
Command = Callable[[], None]


class CommandQueue:
    """Filled by any thread, emptied by the one that calls `run`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._owner: int | None = None

    def __len__(self) -> int:
        return self._queue.qsize()

    def post(self, call: str, command: Command) -> None:
        """Raises `EngineStateInvalid` once closed: what is accepted is always run."""
        with self._gate:
            if self._closed:
                raise EngineStateInvalid(call, "closed")
            self._queue.put(command)

    def ask(self, call: str, question: Callable[[], T]) -> T:
        """The result of `question`, or what it raised; `EngineTimeout` if not run in time."""
        if threading.get_ident() == self._owner:
            raise EngineStateInvalid(call, "delivering a chunk: on_chunk must not wait for it")
        future: Future[T] = Future()
        self.post(call, lambda: _answer(future, question))
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            if future.done():
                raise
            raise EngineTimeout(call, self._timeout_s) from None

    def close(self, last: Command) -> None:
        """Accept nothing after `last`. Closing again does nothing."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(last)

    def run(self, wait: bool) -> None:
        """Run all commands that are there; with `wait`, at least one."""
        self._owner = threading.get_ident()
        try:
            self._queue.get(block=wait)()
            while True:
                self._queue.get_nowait()()
        except queue.Empty:
            return


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except Exception as error:  # handed to the thread that asked
        future.set_exception(error)
