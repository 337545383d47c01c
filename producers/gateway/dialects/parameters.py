"""Checks for parameters in request bodies. Pure; shared by all dialects.

A check gets a parameter's name and value and returns the value to use. It raises `ApiError` (400)
that names the parameter.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import orjson

from seamlessflow.producers.gateway.errors import ApiError, bad
from seamlessflow.schemas.json_text import read_json

P = ParamSpec("P")
R = TypeVar("R")
ParameterCheck = Callable[[str, Any], object]
MOST_STOPS = 16
INT32, INT64 = 2**31 - 1, 2**63 - 1
"""Largest whole numbers that record fields hold."""


def read_body(body: bytes) -> dict[str, Any]:
    """Return a JSON body's members that are not null. Raises `ApiError` (400)."""
    try:
        # Every process reads a call's messages with orjson, which refuses integers this large.
        request = read_json(body, beyond_float=False)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(request, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return {name: value for name, value in request.items() if value is not None}


def refuse_deep_nesting(read: Callable[P, R]) -> Callable[P, R]:
    """Return `read`, changed to raise `ApiError` (400) for a body that is nested too deeply."""

    @wraps(read)
    def checked_read(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except RecursionError:
            raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None

    return checked_read


def text(name: str, value: Any) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise bad(name, f"{name} must be text")
    return value


def flag(name: str, value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise bad(name, f"{name} must be true or false")
    return value


def number(low: float, high: float) -> ParameterCheck:
    """Return a check for numbers in a range."""

    def check(name: str, value: Any) -> float:
        # In Python a bool is an int, in JSON it is not.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad(name, f"{name} must be a number")
        if not low <= value <= high:
            raise bad(name, f"{name} must be between {low:g} and {high:g}, not {value}")
        return float(value)

    return check


def whole(low: int, high: int) -> Callable[[str, Any], int]:
    """Return a check for whole numbers in a range."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(name, f"{name} must be a whole number")
        if not low <= value <= high:
            raise bad(name, f"{name} must be between {low} and {high}, not {value}")
        return value

    return check


def stops(name: str, value: Any) -> tuple[str, ...]:
    """Return texts that end an answer: one or several, none of them empty."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(stop, str) and stop for stop in texts):
        raise bad(name, f"{name} must be text or a list of texts, none of them empty")
    if len(texts) > MOST_STOPS:
        raise bad(name, f"{name} must have at most {MOST_STOPS} entries")
    return tuple(texts)


def stop_list(name: str, value: Any) -> tuple[str, ...]:
    """Return texts that end an answer: a list, none of them empty."""
    if not isinstance(value, list):
        raise bad(name, f"{name} must be a list of texts")
    return stops(name, value)


def token_ids(name: str, value: Any) -> list[int]:
    """Return a list of token ids."""
    if not isinstance(value, list):
        raise bad(name, f"{name} must be a list of token ids")
    for place, token in enumerate(value):
        if type(token) is not int or not 0 <= token <= INT32:
            raise bad(name, f"{name} has no token id at place {place}")
    return value


def includes_usage(options: Any) -> bool:
    """Return whether the `stream_options` ask for token counts."""
    if not isinstance(options, dict):
        raise bad("stream_options", "stream_options must be an object")
    wanted = options.get("include_usage")
    return wanted is not None and flag("stream_options.include_usage", wanted)


def wants_token_ids(request: Mapping[str, Any]) -> bool:
    """Return whether the request asks for prompt and answer token ids, by vLLM's parameter."""
    return flag("return_token_ids", request.get("return_token_ids", False))


def unsupported(*harmless: object) -> ParameterCheck:
    """Return a check that refuses every value but the `harmless` ones, which change nothing."""

    def check(name: str, value: Any) -> None:
        if value not in harmless:
            raise ApiError(400, f"{name} is not supported", code="unsupported_value", param=name)

    return check


def refuse(request: Mapping[str, Any], refused: Mapping[str, ParameterCheck]) -> None:
    """Raise `ApiError` (400) for a parameter in `refused` whose value changes the answer."""
    for name in refused.keys() & request.keys():
        refused[name](name, request[name])
