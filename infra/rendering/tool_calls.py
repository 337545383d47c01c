"""Checked tool calls from completions. Pure; used by `completion_parser.py` and the streams."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")
_OF_ANY_CALL = ("name", "id", "type")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Well-formed call; `arguments` is JSON text, spelt as sampled if the format uses JSON."""

    name: str
    arguments: str
    id: str | None = None
    """Id that the model wrote, in formats that have one."""


class MalformedCall(Exception):
    """A block with tool call markup is no valid call; its text stays in the content."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def read_call(name: object, arguments: object, raw: str, call_id: str | None) -> ToolCall:
    """Return the call that the library parsed from the block `raw`. Raises `MalformedCall`.

    This is stricter than the library, which accepts a number as a name and NaN as an argument.
    Every result can be encoded as UTF-8 and parsed by any JSON parser.
    """
    if not isinstance(name, str) or not name.strip() or not _encodable(name):
        raise MalformedCall("missing_name")
    block = _object(raw)
    if not arguments and leaves_out_arguments(block):
        raise MalformedCall("missing_arguments")
    text = _spelling(raw, block, arguments)
    if text is None:
        text = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    if not _encodable(text) or not _is_json(text):
        raise MalformedCall("invalid_json")
    return ToolCall(name, text, call_id)


def leaves_out_arguments(block: Mapping[Any, object]) -> bool:
    """Return whether a call without `arguments` has other members that may be meant as them.

    Models that know several formats write `parameters`, or the arguments beside the name. If that
    were read as a call without arguments, the agent would execute something else.
    """
    others = [value for member, value in block.items() if member not in _OF_ANY_CALL]
    return "arguments" not in block and any(value not in (None, "", {}) for value in others)


def _object(raw: str) -> Mapping[str, object]:
    """Return a block's JSON object, or an empty one if the block is none."""
    try:
        block = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return block if isinstance(block, dict) else {}


def _spelling(raw: str, block: Mapping[str, object], arguments: object) -> str | None:
    """Return the member `arguments` as `raw` spells it, or None if its value is another one."""
    if "arguments" not in block or block["arguments"] != arguments:
        return None
    return _member(raw, "arguments")


def _member(text: str, wanted: str) -> str | None:
    """Return a top-level member's value as a valid JSON object spells it.

    If two members have the name, the last one counts, as in `json.loads`.
    """
    decoder = json.JSONDecoder()
    place = text.index("{") + 1
    value = None
    while True:
        place = _skip(text, place)
        if text[place] == "}":
            return value
        name, place = decoder.raw_decode(text, place)
        start = _skip(text, _skip(text, place) + len(":"))
        _, end = decoder.raw_decode(text, start)
        if name == wanted:
            value = text[start:end]
        place = _skip(text, end)
        place += text[place] == ","  # otherwise it is the end of the object


def _skip(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
