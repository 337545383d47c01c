"""Sizes of settings that no file system and no process takes. Pure; called by `config_file.py`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from seamlessflow.infra.faults import Fault, SettingPath

_LONGEST_PATH = 4095
_LONGEST_NAME = 255
"""Most bytes of a path, and of a name in it, on Linux."""
_LARGEST_SECTION = 120_000
"""Most bytes of a section as a process gets it: Linux takes 131,071 for a variable and its name."""


def size_faults(config: BaseModel) -> Iterator[Fault]:
    """Yield a fault for each path that no disk can have, and for each section that is too large."""
    for path, value in _paths((), config):
        if why := _impossible(value):
            yield Fault(path, f"is a path that {why}")
    for name in type(config).model_fields:
        size = len(json.dumps(_plain(getattr(config, name)), default=str).encode())
        if size > _LARGEST_SECTION:
            text = f"has {size:,} bytes, more than the {_LARGEST_SECTION:,} that a process takes"
            yield Fault((name,), f"{text}: put large values into a file that your code reads")


def _impossible(path: Path) -> str:
    """Return what a file system does not take of a path, empty if it may be there."""
    if "\0" in str(path):
        return "has a null character, which no file system takes"
    longest = max((len(name.encode()) for name in path.parts), default=0)
    if longest > _LONGEST_NAME:
        return f"has a name of {longest:,} bytes; file systems take {_LONGEST_NAME}"
    size = len(str(path).encode())
    return f"has {size:,} bytes; the system takes {_LONGEST_PATH:,}" if size > _LONGEST_PATH else ""


def _paths(path: SettingPath, value: object) -> Iterator[tuple[SettingPath, Path]]:
    """Yield each path in a section at any depth."""
    if isinstance(value, Path):
        yield path, value
    for name, inner in _members(value):
        yield from _paths((*path, name), inner)


def _members(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, BaseModel):
        yield from ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from enumerate(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="python") if isinstance(value, BaseModel) else value
