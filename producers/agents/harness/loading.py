"""Callables that settings name as `module:function`, sync or async."""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from infra.errors import SeamlessFlowError

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
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise CallableNotFound(name, str(error)) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise CallableNotFound(name, f"module {module_name} has no function {path}")
    return found


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
