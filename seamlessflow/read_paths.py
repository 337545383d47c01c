"""Paths that a configuration reads: beside its file, then in the working directory.

So a command in any directory finds the tasks beside their configuration. What a run writes (`out`
and what lies in it) is always relative to the working directory. Called by `config_file.py`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seamlessflow.infra.variables import SettingPath

_ANY = "*"
_OF_POLICY = (
    ("policy", "model"),
    ("trainer", "critic", "model"),
    ("trainer", "reference"),
    ("trainer", "teacher"),
)
MODELS = (
    *_OF_POLICY,
    *(("policies", _ANY, *path) for path in _OF_POLICY),
    ("policies", _ANY, "frozen"),
)
"""Settings that name models."""
READ = (
    *MODELS,
    ("agents", "environment_python"),
    ("pacing", "tasks"),
    ("pacing", "sources", _ANY, "tasks"),
    ("pacing", "forks"),
    ("evaluation", "tasks"),
    ("evaluation", "sets", _ANY, "tasks"),
    ("rollout", "vllm", "python"),
    ("share", "sign_with"),
)
"""Settings that name files and directories which must be there; * stands for any name."""
LISTED = "environment:"
"""Prefix of a text that stands for the environment's tasks instead of a task file."""
ADAPTER = ("agents", "environment")
"""Setting that names an environment package, or a file with the user's own adapter."""


def is_listed(text: str) -> bool:
    """Return whether a text stands for the environment's tasks."""
    return text.startswith(LISTED)


def found_beside(sections: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return the sections; each relative path that exists in `directory` leads there."""
    resolved: dict[str, Any] = dict(sections)
    for path, text in _relative(sections):
        beside = directory / text
        if exists(beside) or _matched(directory, text):
            resolved = replaced(resolved, path, str(beside))
    return resolved


def searched(sections: Mapping[str, Any], directory: Path) -> Mapping[SettingPath, str]:
    """Return by setting why a path was not found: the places searched, or the path's fault."""
    places = dict.fromkeys((str(directory.absolute()), str(Path.cwd())))
    where = f"looked for in {' and in '.join(places)}"
    missing = {
        path: unreachable(text) or where
        for path, text in _relative(sections)
        if not exists(directory / text) and not exists(Path(text))
    }
    named = values_at(sections, READ)
    return missing | {path: why for path, text in named if (why := _unencodable(text))}


def values_at(
    sections: Mapping[str, Any], patterns: Iterable[tuple[str, ...]]
) -> Iterator[tuple[SettingPath, str]]:
    """Yield each text whose place matches a pattern, with its setting."""
    for pattern in patterns:
        for path, value in _matching(sections, pattern):
            if isinstance(value, str) and value:
                yield path, value


def replaced(sections: Mapping[str, Any], path: SettingPath, value: str) -> dict[str, Any]:
    """Return the sections with another value at a place."""
    first, *rest = path
    inner = replaced(sections[str(first)], tuple(rest), value) if rest else value
    return {**sections, str(first): inner}


def link_nowhere(path: Path) -> Path | None:
    """Return the symbolic link on the way to `path` whose target does not exist, or None."""
    places = (path, *path.parents)
    return next((place for place in places if place.is_symlink() and not place.exists()), None)


def exists(path: Path) -> bool:
    """Return whether a path is there; False also for one that no disk can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _matched(directory: Path, text: str) -> bool:
    """Return whether a pattern matches in a directory."""
    return "*" in text and any(directory.glob(text))


def unreachable(text: str) -> str:
    """Return why no file can have a path as it is written, empty if one can."""
    if text == "~" or text.startswith("~/"):
        return "~ is not expanded here: write the whole path"
    return _unencodable(text)


def _unencodable(text: str) -> str:
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        if (encoding := error.encoding.lower()) == "utf-8":
            return "it has half of a character, which no file has in its name"
        remedy = "set LC_ALL=C.UTF-8 and leave PYTHONUTF8 unset"
        return f"the encoding of this locale, {encoding}, lacks letters of it: {remedy}"
    return ""


def _relative(sections: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
    adapters = (named for named in values_at(sections, (ADAPTER,)) if named[1].endswith(".py"))
    named = (*values_at(sections, READ), *adapters)
    texts = ((path, text) for path, text in named if "://" not in text and not is_listed(text))
    return ((path, text) for path, text in texts if not Path(text).is_absolute())


def _matching(value: Any, pattern: tuple[str, ...]) -> Iterator[tuple[SettingPath, Any]]:
    """Yield each value whose place matches the pattern, with its place."""
    if not pattern:
        yield (), value
        return
    name, *rest = pattern
    names = list(value) if isinstance(value, Mapping) else []
    if name != _ANY:
        names = [name] if name in names else []
    for key in names:
        for path, inner in _matching(value[key], tuple(rest)):
            yield (key, *path), inner
