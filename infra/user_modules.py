"""Modules of the user's own, which settings name as `module:function`."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType


def import_from_here(name: str) -> ModuleType:
    """Import a module, also from the working directory. Raises whatever its import raises.

    The working directory comes last: no file there hides a library that others import.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return import_module(name)


def hidden_by(module: ModuleType) -> str:
    """Return what to do if a library was imported in place of a file here, else an empty text."""
    name = module.__name__.partition(".")[0]
    file = Path(getattr(module, "__file__", None) or name)
    mine = [path for path in (Path.cwd() / f"{name}.py", Path.cwd() / name) if path.exists()]
    if not mine or file.is_relative_to(Path.cwd()):
        return ""
    return f"; it is {file}, which hides {mine[0]}: give your module another name"
