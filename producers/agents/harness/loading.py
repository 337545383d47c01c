"""Callables that settings name as `module:function`, sync or async."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.user_modules import hidden_by, import_from_here

Callback = Callable[..., object]


class CallableNotFound(SeamlessFlowError):
    """A `module:function` cannot be imported or is not callable."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name!r} cannot be called: {reason}")


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
