"""The thread that owns an engine's state, and the way into it from other threads.

`post` does not wait; `ask` waits for the result, up to a deadline. Both run in the order they were
called. Only this thread touches what belongs to the engine, so that state needs no lock. The torch
and the scripted engine have one each, and the vLLM engine's event loop runs in one.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid, EngineTimeout

T = TypeVar("T")
Command = Callable[[], object]


class CommandQueue:
    """Commands from any thread for the one that calls `run`, in the order they came."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, command: Command) -> None:
        """Add a command. Does not block."""
        self._queue.put(command)

    def run(self, wait_s: float | None) -> None:
        """Run all commands in the queue; wait so long for the first; None: without a limit."""
        try:
            self._queue.get(block=wait_s != 0, timeout=wait_s)()
            while True:
                self._queue.get_nowait()()
        except queue.Empty:
            return


class EngineThread:
    """A thread that runs from construction until `close`."""

    def __init__(
        self, name: str, timeout_s: float, run: Callable[[], None], put: Callable[[Command], object]
    ) -> None:
        """Start the thread on `run`, which must run the commands given to `put`, in that order."""
        self._timeout_s = timeout_s
        self._put = put
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: str, command: Command) -> None:
        """Queue a command; an accepted one always runs. Raises `EngineStateInvalid` once closed."""
        with self._gate:
            if self._closed:
                raise EngineStateInvalid(call, "closed")
            self._put(command)

    def ask(self, call: str, question: Callable[[], T]) -> T:
        """Return the result of `question`, or raise what it raised.

        Raises `EngineTimeout` if it was not run in time.
        """
        future: Future[T] = Future()
        return self.ask_for(future, call, lambda: _answer(future, question))

    def ask_for(self, future: Future[T], call: str, command: Command) -> T:
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

    def close(self, last: Command) -> None:
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


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except Exception as error:  # raised again in the thread that asked
        future.set_exception(error)
