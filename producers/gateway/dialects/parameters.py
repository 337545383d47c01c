"""Parameters of request bodies, checked. Pure; shared by all dialects.

A check takes a parameter's name and value and gives the value to use; it raises `ApiError` (400)
that names the parameter.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import orjson

from producers.gateway.errors import ApiError, bad

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[str, Any], object]
MOST_STOPS = 16


def read_body(body: bytes) -> dict[str, Any]:
    """The request's members that are not null."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(request, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return {name: value for name, value in request.items() if value is not None}


def refuse_deep_nesting(read: Callable[P, R]) -> Callable[P, R]:
    """`read`, but what is nested more deeply than it can look at is refused with 400 as well."""

    @wraps(read)
    def within_bounds(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(*args, **kwargs)
        except RecursionError:
            raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None

    return within_bounds


def text(name: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise bad(name, f"{name} must be text")
    return value


def flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise bad(name, f"{name} must be true or false")
    return value


def number(low: float, high: float) -> Check:
    """A check for numbers in a range."""

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad(name, f"{name} must be a number")
        if not low <= value <= high:
            raise bad(name, f"{name} must be between {low:g} and {high:g}, not {value}")
        return float(value)

    return check


def whole(low: int, high: int) -> Callable[[str, Any], int]:
    """A check for whole numbers in a range."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(name, f"{name} must be a whole number")
        if not low <= value <= high:
            raise bad(name, f"{name} must be between {low} and {high}, not {value}")
        return value

    return check


def stops(name: str, value: Any) -> tuple[str, ...]:
    """One text or several, none of them empty."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
        raise bad(name, f"{name} must be text or a list of texts, none of them empty")
    if len(texts) > MOST_STOPS:
        raise bad(name, f"{name} must have at most {MOST_STOPS} entries")
    return tuple(texts)


def stop_list(name: str, value: Any) -> tuple[str, ...]:
    """Several texts, none of them empty."""
    if not isinstance(value, list):
        raise bad(name, f"{name} must be a list of texts")
    return stops(name, value)


def includes_usage(options: Any) -> bool:
    """Whether the `stream_options` ask for token counts."""
    if not isinstance(options, dict):
        raise bad("stream_options", "stream_options must be an object")
    wanted = options.get("include_usage")
    return wanted is not None and flag("stream_options.include_usage", wanted)


def unsupported(*harmless: object) -> Check:
    """A check that lets nothing pass but what asks for nothing."""

    def check(name: str, value: Any) -> None:
        if value not in harmless:
            raise ApiError(400, f"{name} is not supported", code="unsupported_value", param=name)

    return check
