"""JSON texts of agents and tasks, read and written without the loss of a digit. Pure.

orjson reads an integer beyond 64 bits as the nearest float and refuses to write one. So a text with
so many digits in a row is read by Python's own parser, which is slower and exact. All that came
from an agent's tools, calls and tasks is read and written here.
"""

import json
from typing import Any

import orjson

_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * len(str(2**63))
_TOO_WIDE = "Integer exceeds 64-bit range"


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text; its integers are exact.

    Raises `orjson.JSONDecodeError`, a `ValueError`; of an integer of more than 4300 digits too.
    """
    value = orjson.loads(text)
    # Two passes of C code, which cost less than a regular expression: most texts end here.
    if _MANY_DIGITS not in text.translate(_AS_ZERO):
        return value
    # Only a text that orjson took comes here, so it holds no NaN and no half of a character.
    shown = text.decode()
    try:
        return json.loads(shown)
    except json.JSONDecodeError as error:
        raise orjson.JSONDecodeError(error.msg, shown, error.pos) from error
    except ValueError as error:
        raise orjson.JSONDecodeError(str(error), shown, 0) from error


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
