"""Arguments of a tool call as a JSON object, for the dialects that have no text there. Pure.

They are JSON text in canonical form. A model may sample text that is not a JSON object. It is sent
to the agent as `{"$arguments": text}`, so that the agent sends back exactly what was sampled.
"""

import json
from collections.abc import Mapping

import orjson

from seamlessflow.producers.gateway.errors import bad

_TEXT = "$arguments"


def call_input(arguments: str) -> bytes:
    """Return a call's arguments as a JSON object, written as they were sampled."""
    arguments = arguments or "{}"
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:  # also for JSON that many parsers refuse: 1e999, "\ud800"
        value = None
    if not isinstance(value, dict) or _is_wrapped_text(value):
        return orjson.dumps({_TEXT: arguments})
    return arguments.encode()


def call_arguments(place: str, value: object) -> str:
    """Return the arguments of a call's input, written as most models do. Raises `ApiError`."""
    if not isinstance(value, dict):
        raise bad(place, f"{place} must be an object")
    if _is_wrapped_text(value):
        return str(value[_TEXT])
    try:
        # json writes a space after each comma and colon, as most models do; orjson does not.
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise bad(place, f"{place} is nested too deeply") from error


def _is_wrapped_text(value: Mapping[str, object]) -> bool:
    return len(value) == 1 and isinstance(value.get(_TEXT), str)
