"""Users' own functions, which settings name as `module:function`, beside built-in ones.

Their modules may lie in the working directory. What such a function decides or computes is recorded
with its file's SHA-256, so another file is another function.
"""

import hashlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, JsonValue, Tag

from seamlessflow.infra.errors import SeamlessFlowError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def is_user_function(name: str) -> bool:
    """Return whether a name is written as a user's function; built-in names are not."""
    return ":" in name


def _written(name: str) -> str:
    parts = [part for half in name.split(":") for part in half.split(".")]
    if name.count(":") != 1 or not all(part.isidentifier() for part in parts):
        raise ValueError("must be module:function, with names as Python has them")
    return name


UserFunctionName = Annotated[str, AfterValidator(_written)]
"""Name of a user's own function, `module:function`."""
OrUserFunction = Annotated[
    Annotated[T, Tag("built-in")] | Annotated[UserFunctionName, Tag("function")],
    Discriminator(lambda name: "function" if is_user_function(str(name)) else "built-in"),
]
"""One of the built-in names `T`, or a user's own function."""
OwnSettings = Mapping[str, Mapping[str, JsonValue]]
"""Settings for such functions by their names; each gets its own as keyword arguments."""


class FunctionUnusable(SeamlessFlowError):
    """A `module:function` that cannot be imported, or is no function."""

    lasting = True

    def __init__(self, name: str, reason: str, absent: bool = False) -> None:
        self.name = name
        self.reason = reason
        self.absent = absent
        """True if there is no such module or function, so that a name may be misspelt."""
        super().__init__(f"{name!r} {reason}")


class ResultMalformed(SeamlessFlowError):
    """A method's result that cannot be used."""

    lasting = True

    def __init__(self, returned: str, expected: str) -> None:
        self.returned = returned
        self.expected = expected
        super().__init__(f"it returned {returned}, not {expected}")


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user's own function, as this process has imported it."""

    name: str
    call: Callable[..., Any]
    file: Path
    sha256: str
    """Its file's hash, which distinguishes it from its other versions."""


def refuse_unnamed(functions: OwnSettings, names: Iterable[str], settings: str) -> None:
    """Raise `ValueError` if there are settings for a function that none of `settings` names."""
    if strange := sorted(set(functions).difference(names)):
        raise ValueError(
            f"functions has settings for {', '.join(strange)}, which {settings} does not name"
        )


@cache
def user_function(name: str) -> UserFunction:
    """Return a user's function, imported once in a process. Raises `FunctionUnusable`."""
    call = load_function(name)
    module = sys.modules[name.partition(":")[0]]
    file = getattr(module, "__file__", None)
    if file is None:
        raise FunctionUnusable(name, "cannot be recorded: its module has no file")
    return UserFunction(name, call, Path(file), hashlib.sha256(Path(file).read_bytes()).hexdigest())


def chosen(table: Mapping[str, F], name: str, settings: OwnSettings) -> F:
    """Return the function with that name: a built-in one, or a user's with its own settings.

    Raises `FunctionUnusable`.
    """
    if not is_user_function(name):
        return table[name]
    # The caller knows the contract, and checks what the function returns.
    return partial(user_function(name).call, **settings.get(name, {}))  # type: ignore[return-value]


def source_sha256(name: str) -> str:
    """Return the hash of a user function's file; empty for a built-in name.

    Raises `FunctionUnusable`.
    """
    return user_function(name).sha256 if is_user_function(name) else ""


def load_function(name: str) -> Callable[..., Any]:
    """Import a function, also from the working directory. Raises `FunctionUnusable`."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise FunctionUnusable(name, "cannot be called: it is not written as module:function")
    try:
        module = import_from_here(module_name)
    except ModuleNotFoundError as error:
        if f"{module_name}.".startswith(f"{error.name}."):
            raise FunctionUnusable(name, f"cannot be called: {error}", absent=True) from error
        raise FunctionUnusable(name, f"cannot be imported: {place_of(error)}{error}") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        reason = f"{place_of(error)}{type(error).__name__}: {error}"
        raise FunctionUnusable(name, f"cannot be imported: {reason}") from error
    target: object = module
    for part in path.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        reason = f"module {module_name} has no function {path}{hidden_by(module)}"
        raise FunctionUnusable(name, f"cannot be called: {reason}", absent=True)
    return target


def import_from_here(name: str) -> ModuleType:
    """Import a module, also from the working directory. Raises whatever its import raises.

    The working directory comes last: no file there hides a library that others import.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return import_module(name)


def hidden_by(module: ModuleType) -> str:
    """Return what to do if a library was imported instead of a file here, else an empty text."""
    name = module.__name__.partition(".")[0]
    file = Path(getattr(module, "__file__", None) or name)
    mine = [path for path in (Path.cwd() / f"{name}.py", Path.cwd() / name) if path.exists()]
    if not mine or file.is_relative_to(Path.cwd()):
        return ""
    return f"; it is {file}, which hides {mine[0]}: give your module another name"


def place_of(error: BaseException) -> str:
    """Return file and line in the user's code that raised, as a message's beginning.

    If a library raised the error, this is the line that called it.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and frame.filename != __file__
    ]
    if not frames:
        return ""
    users = [frame for frame in frames if not _is_of_library(Path(frame.filename))]
    last = (users or frames)[-1]
    return f"{last.filename}, line {last.lineno}: "


def _is_of_library(file: Path) -> bool:
    places = sysconfig.get_paths()
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(file.is_relative_to(places[kind]) for kind in kinds)
