"""Tool calls as they come out of a completion. Pure; used by
`infra/rendering/completion_parser.py` and the message streams."""

import json
import re
from dataclasses import dataclass
from typing import NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A well-formed call; `arguments` is JSON text, spelt as sampled where the format carries
    JSON."""

    name: str
    arguments: str
    id: str | None = None
    """The id the model itself wrote, in formats that have one."""


class MalformedCall(Exception):
    """A block of tool-call markup is no tool call; its text is to stay in the content."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def read_call(name: object, arguments: object, raw: str, call_id: str | None) -> ToolCall:
    """The call that a library read out of the block `raw`. Raises `MalformedCall`.

    Stricter than the library, which takes a number as a name and NaN as an argument: whatever is
    returned here can be encoded as UTF-8 and read by any JSON parser.
    """
    if not isinstance(name, str) or not name.strip() or not _encodable(name):
        raise MalformedCall("missing_name")
    text = _spelling(raw, arguments)
    if text is None:
        text = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    if not _encodable(text) or not _is_json(text):
        raise MalformedCall("invalid_json")
    return ToolCall(name, text, call_id)


def _spelling(raw: str, arguments: object) -> str | None:
    """The text of the member `arguments` in `raw`, if `raw` is a JSON object that holds just this
    value there."""
    try:
        block = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(block, dict) or "arguments" not in block or block["arguments"] != arguments:
        return None
    return _member(raw, "arguments")


def _member(text: str, wanted: str) -> str | None:
    """The text of a top-level member's value in a valid JSON object; of two the last, as in
    `json.loads`."""
    decoder = json.JSONDecoder()
    place = text.index("{") + 1
    found = None
    while True:
        place = _skip(text, place)
        if text[place] == "}":
            return found
        name, place = decoder.raw_decode(text, place)
        start = _skip(text, _skip(text, place) + len(":"))
        _, end = decoder.raw_decode(text, start)
        if name == wanted:
            found = text[start:end]
        place = _skip(text, end)
        place += text[place] == ","


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
