"""Process that imports callables: `python -m seamlessflow.checks.imports ANSWER ASKED`.

ASKED is a list of callables as JSON. The file ANSWER gets a line for each: its number and its
fault, empty if it has none.
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seamlessflow.infra.faults import suggestion
from seamlessflow.infra.user_functions import FunctionUnusable, load_function, place_of


def main() -> None:
    """Import the callables one after the other."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as answer:
        for number, function in enumerate(json.loads(sys.argv[2])):
            answer.write(json.dumps([number, _wrong(function)]) + "\n")
            answer.flush()


def _wrong(asked: Mapping[str, Any]) -> str:
    """Return what is wrong with a callable; empty if nothing is."""
    name = asked["name"]
    settings = asked["settings"]
    try:
        function = load_function(name)
    except FunctionUnusable as error:
        return f"{error.reason}{_nearest(name) if error.absent else ''}"
    except BaseException as error:
        return f"cannot be imported: {place_of(error)}{type(error).__name__}: {error}"
    wrong_call = _called(function, asked["arguments"], settings)
    if wrong_call or not asked["seam"]:
        return wrong_call
    from seamlessflow.seams.trying import fault_of  # what is tried may need torch

    return fault_of(tuple(asked["seam"]), name, settings)


def _called(
    function: Callable[..., Any], arguments: Sequence[str], settings: Mapping[str, Any]
) -> str:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return ""
    try:
        signature.bind(*arguments, **settings)
    except TypeError as error:
        call = ", ".join([*arguments, *(f"{name}=" for name in settings)])
        return f"is called with ({call}), but it is defined as {signature}: {error}"
    return ""


def _nearest(name: str) -> str:
    """Return a message's end: where a module was looked for, and the nearest name."""
    module, _, path = name.partition(":")
    loaded = sys.modules.get(module)
    if loaded is None:
        near = suggestion(module, [file.stem for file in Path.cwd().glob("*.py")])
        return f" (looked for in {Path.cwd()} and among what is installed){near}"
    functions = [function_name for function_name, value in vars(loaded).items() if callable(value)]
    return suggestion(path, functions)


if __name__ == "__main__":
    main()
