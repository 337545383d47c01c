"""Callables that settings name as `module:function`, sync or async, and the threads of sync ones.

Each call of a sync one has a thread, so one that never returns holds no other up. A thread cannot
be stopped. These do not keep the process from ending.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.user_modules import hidden_by, import_from_here

P = ParamSpec("P")
T = TypeVar("T")
Callback = Callable[..., object]


class CallableNotFound(SeamlessFlowError):
    """A `module:function` cannot be imported or is not callable."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name!r} cannot be called: {reason}")


class CallThreads(Executor):
    """Executor without a limit of its own.

    Each episode has one running call at most. Calls left behind by episodes that have ended may
    run too (`stalls.py`).
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


def load_callable(name: str) -> Callback:
    """Import a function, also from the working directory. Raises `CallableNotFound`."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise CallableNotFound(name, "it is not written as module:function")
    try:
        module = import_from_here(module_name)
    except ModuleNotFoundError as error:
        raise CallableNotFound(name, str(error)) from error
    target: object = module
    for part in path.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        reason = f"module {module_name} has no function {path}{hidden_by(module)}"
        raise CallableNotFound(name, reason)
    return target


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
    """Return the error as a future can hold it: no `StopIteration`, as in a coroutine (PEP 479)."""
    if not isinstance(error, StopIteration):
        return error
    raised = RuntimeError("the callable raised StopIteration")
    raised.__cause__ = error
    return raised
