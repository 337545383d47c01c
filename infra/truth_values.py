"""Refusal of true and false where a number belongs: pydantic takes them as 1 and 0. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

_NUMBERS = {int, float}


def refuse_truth(value: Any, annotation: Any) -> Any:
    """Return a value for a setting of this type. Raise `ValueError` if true or false is in it, and
    the type has numbers and neither of them.
    """
    kinds = set(_kinds(annotation))
    if kinds & _NUMBERS and bool not in kinds and (places := list(_truths(value))):
        place = f"{places[0]}: " if places[0] else ""
        raise ValueError(
            f"{place}must be a number, not true or false, which yes, no, on and off are also"
        )
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation is made of."""
    if inner := get_args(annotation):
        for part in inner:
            yield from _kinds(part)
    else:
        yield annotation


def _truths(value: Any, place: str = "") -> Iterator[str]:
    """Yield the places at which a value has true or false."""
    if isinstance(value, bool):
        yield place
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _truths(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _truths(inner, f"{place}[{number}]")
