"""The thread that owns an engine's state, and the way into it from other threads.

`post` does not wait, `ask` waits for the result up to a deadline; both begin in the order they were
called. What they are given is alone in touching what belongs to the thread, so that needs no lock.
The torch and the scripted engine have one each, and the vLLM engine's event loop runs in one.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from producers.rollout.engine.commands import Command
from producers.rollout.engine.errors import EngineStateInvalid, EngineTimeout

T = TypeVar("T")


class EngineThread:
    """Runs from construction until `close`."""

    def __init__(
        self,
        name: str,
        timeout_s: float,
        run: Callable[[], None],
        put: Callable[[Command], object],
    ) -> None:
        """`run` is what the thread does; it runs what `put` gives it, in that order."""
        self._timeout_s = timeout_s
        self._put = put
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: str, command: Command) -> None:
        """Raises `EngineStateInvalid` once closed: what is accepted is always run."""
        with self._gate:
            if self._closed:
                raise EngineStateInvalid(call, "closed")
            self._put(command)

    def ask(self, call: str, question: Callable[[], T]) -> T:
        """The result of `question`, or what it raised; `EngineTimeout` if not run in time."""
        future: Future[T] = Future()
        return self.ask_for(future, call, lambda: _answer(future, question))

    def ask_for(self, future: Future[T], call: str, command: Command) -> T:
        """What `command` puts into `future`, at once or later, as `ask` gives it."""
        self._refuse_within(call)
        self.post(call, command)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            if future.done():
                raise
            raise EngineTimeout(call, self._timeout_s) from None

    def close(self, last: Command) -> None:
        """Accepts nothing after `last`, which is to end `run`, and waits for that.

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
        if threading.current_thread() is self._thread:
            raise EngineStateInvalid(call, "delivering a chunk: on_chunk must not wait for it")


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except Exception as error:  # handed to the thread that asked
        future.set_exception(error)
