"""Calls to functions that settings name, sync or async, and the threads for sync ones.

Each call to a sync function has its own thread, so a call that never returns holds up no other. A
thread cannot be stopped, but these threads do not keep the process from ending.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Callback = Callable[..., object]


class CallThreads(Executor):
    """Executor without a thread limit.

    Each episode has one running call at most. Episodes that have ended may have left calls behind,
    which run too (`stalls.py`).
    """

    def __init__(self) -> None:
        self._running: dict[object, tuple[object, ...]] = {}

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> Future[T]:
        """Call the function in a new thread."""
        call: Future[T] = Future()
        call.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = function(*arguments, **named)
            except BaseException as error:
                del self._running[call]
                call.set_exception(_passable(error))
            else:
                del self._running[call]
                call.set_result(result)

        self._running[call] = arguments
        threading.Thread(target=run, name="agent", daemon=True).start()
        return call

    def runs_with(self, argument: object) -> bool:
        """Return whether a call that has this argument still runs."""
        running = list(self._running.values())
        return any(argument is other for arguments in running for other in arguments)


async def invoke(function: Callback, threads: Executor, *arguments: object) -> object:
    """Call an async function on this loop, any other in a thread. Raises what the function raises.

    Cancelling stops an async function; a thread cannot be stopped and runs to its end.
    """
    if _is_async(function):
        value = function(*arguments)
    else:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(threads, function, *arguments)
    return await value if inspect.isawaitable(value) else value


def _is_async(function: Callback) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def _passable(error: BaseException) -> BaseException:
    """Return an error that a future can hold: not `StopIteration`, as in a coroutine (PEP 479)."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError("the callable raised StopIteration")
    raised.__cause__ = error
    return raised
