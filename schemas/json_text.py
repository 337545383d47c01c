"""JSON texts from agents and tasks, read and written without losing a digit. Pure.

orjson reads an integer beyond 64 bits as the nearest float and refuses to write one. So Python's
own parser, which is slower and exact, reads a text with so many digits in a row. Everything from an
agent's tools, calls and tasks is read and written here.
"""

import json
from math import isfinite
from typing import Any

import orjson

_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * len(str(2**63))
_TOO_WIDE = "Integer exceeds 64-bit range"
_INFINITE = "number is infinity"
_MOST_DIGITS = 4300
"""Most digits that an integer may have for Python to read it."""


def read_json(text: bytes, *, beyond_float: bool = True) -> Any:
    """Return a JSON text's value; its integers are exact.

    Raises `orjson.JSONDecodeError`, a `ValueError`, also for an integer with more than 4300 digits.
    Without `beyond_float`, an integer larger than any float raises it too.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # orjson reports an integer with more than 308 digits in the same way.
        if not (beyond_float and error.msg.startswith(_INFINITE)):
            raise
        return _read_exactly(text)
    # Two passes in C cost less than a regular expression. Most texts end here.
    return value if _MANY_DIGITS not in text.translate(_AS_ZERO) else _read_exactly(text)


def _read_exactly(text: bytes) -> Any:
    """Return a JSON text's value, as Python's parser reads it. This parser takes more than JSON."""
    shown = text.decode(errors="replace")
    try:
        value = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
        json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        raise orjson.JSONDecodeError(error.msg, shown, error.pos) from error
    except (ValueError, RecursionError) as error:  # also for half a character
        raise orjson.JSONDecodeError(str(error), shown, 0) from error


def _number(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text} is no finite number")
    return value


def _whole(text: str) -> int:
    if (digits := len(text.lstrip("-"))) > _MOST_DIGITS:
        raise ValueError(f"an integer has {digits} digits, and at most {_MOST_DIGITS} are read")
    return int(text)


def write_json(value: object, *, sort_keys: bool = False) -> bytes:
    """Return a value as JSON without spaces.

    Raises `TypeError` for a value that JSON does not have, and for one that is nested too deeply.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else 0)
    except TypeError as error:
        if str(error) != _TOO_WIDE:
            raise
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
    )
    return text.encode()
