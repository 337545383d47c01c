"""Process that imports callables: `python -m seamlessflow.checks.imports ANSWER ASKED`.

ASKED is a list of callables as JSON. The file ANSWER gets a line for each: its number and its
fault, empty if it has none.
"""

import inspect
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from seamlessflow.infra.faults import suggestion
from seamlessflow.producers.agents.harness.callables import (
    CallableNotFound,
    Callback,
    load_callable,
)


def main() -> None:
    """Import the callables one after the other."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as answer:
        for number, function in enumerate(json.loads(sys.argv[2])):
            reason = _wrong(function["name"], function["arguments"])
            answer.write(json.dumps([number, reason]) + "\n")
            answer.flush()


def _wrong(name: str, arguments: Sequence[str]) -> str:
    try:
        function = load_callable(name)
    except CallableNotFound as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and not _within(name, cause.name):
            return f"cannot be imported: {_place(cause)}{cause}"
        return f"cannot be called: {error.reason}{_nearest(name)}"
    except BaseException as error:  # SystemExit also: a script without a guard for its main
        return f"cannot be imported: {_place(error)}{type(error).__name__}: {error}"
    return _called(function, arguments)


def _called(function: Callback, arguments: Sequence[str]) -> str:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"is called with ({', '.join(arguments)}), but it is defined as {signature}: {error}"
    return ""


def _place(error: BaseException) -> str:
    """Return the file and line of a module that raised."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and frame.filename not in (__file__, _LOADING)
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""


def _within(name: str, module: str | None) -> bool:
    """Return whether `module` is that of the callable or one of the packages that it is in."""
    return f"{name.partition(':')[0]}.".startswith(f"{module}.")


def _nearest(name: str) -> str:
    """Return the end of a message: where a module was looked for, and the nearest name."""
    module, _, path = name.partition(":")
    loaded = sys.modules.get(module)
    if loaded is None:
        near = suggestion(module, [file.stem for file in Path.cwd().glob("*.py")])
        return f" (looked for in {Path.cwd()} and among what is installed){near}"
    functions = [function_name for function_name, value in vars(loaded).items() if callable(value)]
    return suggestion(path, functions)


_LOADING = inspect.getfile(load_callable)

if __name__ == "__main__":
    main()
