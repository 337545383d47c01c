"""Faults in settings: what pydantic found wrong, by the setting's path. Pure.

`settings.py` writes a path as its variable, the command line as the user wrote it in a file.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from seamlessflow.infra.variables import SettingPath

_CREDENTIALS = ("secret", "key", "password", "options")
"""A setting whose name has one of these words never has its value shown."""

_PASSWORD = re.compile(r"://[^/@]*:[^/]*@")
"""A password in a URL, which is not shown either."""
_LONGEST_TEXT = 1000
"""Most letters in a text about a setting: a value may have any length."""
_LIKE = 0.6
_FEW = 8
"""Most names in a section for which all are listed, if none is like the wrong one."""
_KINDS = {
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(("model_type", "dict_type"), "must be a section: names with values"),
}
"""Texts for a value with another form, in a configuration's words."""
_UNKNOWN_NAME = ("extra_forbidden", "unexpected_keyword_argument")
_QUOTED = re.compile(r"'([^']*)'")
_ONE_CLASS = re.compile(r"\^\[(A-Za-z0-9[^]]*)\][+*]\$")
"""A pattern for texts that have only certain characters."""
_COMMA = re.compile(r"([-+]?\d+),(\d+(?:[eE][-+]?\d+)?)")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
"""Numbers with a comma in them, which are texts."""


class Fault(NamedTuple):
    """A wrong setting; `path` is empty for a rule about several settings."""

    path: SettingPath
    text: str
    meant: SettingPath | None = None
    """The nearest setting that exists, for a name that does not."""

    def line(self, place: Callable[[SettingPath], str]) -> str:
        """Return the fault as one line; `place` writes a setting's path."""
        where = f"{_shortened(place(self.path))}: " if self.path else ""
        meant = f"; did you mean {place(self.meant)}?" if self.meant else ""
        return f"{where}{_shortened(self.text)}{meant}"


def _shortened(text: str) -> str:
    """Return the text, without its middle if it is very long."""
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} ... {text[-half:]}"


def faults(error: ValidationError, settings: type[BaseModel]) -> list[Fault]:
    """Return all faults in `settings` that the error names, never with a credential."""
    items = error.errors()
    return [_fault(item, settings) for item in items if not _only_lost_members(item, items)]


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`, or None if none is like it."""
    names = sorted(candidates)
    begin = [candidate for candidate in names if name and candidate.startswith(name)]
    likely = begin or get_close_matches(name, names, 1, _LIKE)
    return likely[0] if likely else None


def suggestion(name: object, candidates: Iterable[str]) -> str:
    """Return a message's end that names the nearest known name; empty if none is like it."""
    near = nearest(name, candidates) if isinstance(name, str) else None
    return f"; did you mean {near}?" if near else ""


def _only_lost_members(item: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a list is too short only because its wrong members do not count."""
    loc = item["loc"]
    longer = (other["loc"] for other in items if len(other["loc"]) > len(loc))
    return item["type"] == "too_short" and any(other[: len(loc)] == loc for other in longer)


def _fault(item: Mapping[str, Any], settings: type[BaseModel]) -> Fault:
    path, around = _place(item["loc"], settings)
    if item["type"] in _UNKNOWN_NAME:
        meant = nearest(str(path[-1]), around)
        text = "there is no such setting"
        if not meant and 0 < len(around) <= _FEW:
            text += f"; there are {', '.join(sorted(around))}"
        return Fault(path, text, (*path[:-1], meant) if meant else None)
    got = _given(path, item["input"])
    if item["type"] == "literal_error":
        choices = _QUOTED.findall(item["ctx"]["expected"])
        text = f"must be one of {', '.join(choices)}{got}{suggestion(item['input'], choices)}"
        return Fault(path, text)
    if item["input"] is None and item["type"] != "missing":
        text = "it is empty (null, which ~ is also): give a value, or leave it out for its default"
        return Fault(path, text)
    text = _KINDS.get(item["type"], item["msg"].removeprefix("Value error, "))
    if item["type"] == "string_pattern_mismatch":
        text = _characters(item["ctx"]["pattern"]) or text
    if item["type"] in ("int_parsing", "float_parsing"):
        text = _no_number(str(item["input"])) or text
    return Fault(path, f"{text}{got}")


def _characters(pattern: str) -> str:
    """Return which characters a pattern allows; empty for a pattern with another form."""
    if (matched := _ONE_CLASS.fullmatch(pattern)) is None:
        return ""
    *others, last = list(matched[1].replace("A-Za-z", "").replace("0-9", ""))
    return f"must be made of letters (A to Z), digits, {', '.join(others)} and {last} alone"


def _no_number(text: str) -> str:
    """Return why a text with a comma is no number; empty if it has no comma."""
    if (matched := _COMMA.fullmatch(text.strip())) is None:
        return ""
    whole, rest = matched.groups()
    thousands = (
        f", or {whole}{rest} if it stands between thousands"
        if _THOUSANDS.fullmatch(text.strip())
        else ""
    )
    return f"is a text, since a comma is in it: write a decimal point, {whole}.{rest}{thousands}"


def _given(path: SettingPath, value: object) -> str:
    """Return the value that was set, if it is a single value and no credential."""
    hidden = any(name in str(path).lower() for name in _CREDENTIALS) or _PASSWORD.search(str(value))
    return "" if hidden or not isinstance(value, str | int | float) else f" (got {value!r})"


def _place(loc: Sequence[int | str], settings: Any) -> tuple[SettingPath, Sequence[str]]:
    """Return a setting's path without pydantic's own marks, and the names in its section."""
    path: list[int | str] = []
    names: Sequence[str] = ()
    for part in loc:
        fields = _fields(settings)
        if part == "[key]":  # the name itself is wrong
            break
        if fields is not None:
            names = list(fields)
            path.append(part)
            settings = fields.get(str(part))
        elif get_origin(settings) in (dict, Mapping, tuple, list):
            path.append(part)
            inner = -1 if get_origin(settings) in (dict, Mapping) else 0
            names = ()
            settings = _plain(get_args(settings)[inner])
        elif (member := _tagged(settings, part)) is not None:
            settings = member
        else:  # a mark, such as the member of a union that was tried
            break
    return tuple(path), names


def _fields(settings: Any) -> Mapping[str, Any] | None:
    """Return the types of a section's fields, or None for any other type."""
    if isinstance(settings, type) and issubclass(settings, BaseModel):
        fields = settings.model_fields
    else:
        fields = getattr(settings, "__pydantic_fields__", None) or {}
    return {field.alias or name: _plain(field.annotation) for name, field in fields.items()} or None


def _tagged(settings: Any, tag: int | str) -> Any:
    """Return the union's member that a tag names, or None."""
    members = get_args(settings) if get_origin(settings) in (Union, UnionType) else ()
    named = (
        member
        for member in members
        if get_origin(member) is Annotated and Tag(str(tag)) in get_args(member)
    )
    return next(map(_plain, named), None)


def _plain(annotation: Any) -> Any:
    """Return a type without its constraints and without None."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation
