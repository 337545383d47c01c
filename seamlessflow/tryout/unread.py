"""Members in a call body that the gateway does not read. Pure.

Dialects have no list of the names that they read. So each member is replaced by values that no
reader takes. If the dialect makes the same request from those bodies, it does not read the member.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import Dialect
from seamlessflow.producers.gateway.errors import ApiError

MOST_CHOICES = 64
_STRANGE: Sequence[object] = ({"no member": [["has this value"]]}, "\0no such text")
_DEEPEST = 5
_MOST_PLACES = 300
_PASSED_WHOLE = frozenset({"parameters", "input_schema", "schema", "properties", "arguments"})
"""Members whose content goes to the model as it is."""
_OF_THE_FORM = frozenset({"response_format.json_schema.name", "text.format.name"})
"""Members that the vendor demands although they say nothing; each `type` is like that."""
MemberPath = Sequence[str | int]


def unread_members(dialect: Dialect, body: Mapping[str, Any]) -> list[str]:
    """Return the members that change nothing, such as `user` and `messages[].name`.

    Empty if the body is refused.
    """
    made = _request(dialect, body)
    if made is None:
        return []
    judged: dict[str, bool] = {}
    _judge(dialect, body, made, body, (), judged)
    return [name for name, is_read in judged.items() if not is_read and name not in _OF_THE_FORM]


def _judge(
    dialect: Dialect,
    body: Mapping[str, Any],
    made: CanonicalRequest,
    part: object,
    place: MemberPath,
    judged: dict[str, bool],
) -> None:
    """Note if each member below a place is read; list elements share one note for a member.

    What is not read has no members to look at.
    """
    for step, member in _members(part):
        inner = (*place, step)
        name = _shown(inner)
        if member is None or len(judged) >= _MOST_PLACES:
            continue
        if name not in judged and isinstance(step, str) and step != "type":
            judged[name] = any(
                _request(dialect, _replaced(body, inner, value)) != made for value in _STRANGE
            )
        if judged.get(name, True) and len(inner) < _DEEPEST and step not in _PASSED_WHOLE:
            _judge(dialect, body, made, member, inner, judged)


def _request(dialect: Dialect, body: object) -> CanonicalRequest | None:
    try:
        return dialect.parse(json.dumps(body).encode(), MOST_CHOICES)
    except ApiError:
        return None


def _members(part: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(part, Mapping):
        yield from part.items()
    elif isinstance(part, list):
        yield from enumerate(part)


def _replaced(part: Any, place: MemberPath, value: object) -> Any:
    """Return a part with another value at a place; only the parts on the way are copied."""
    if not place:
        return value
    first, *rest = place
    copy: Any = list(part) if isinstance(part, list) else dict(part)
    copy[first] = _replaced(part[first], rest, value)
    return copy


def _shown(place: MemberPath) -> str:
    shown = "".join("[]" if isinstance(step, int) else f".{step}" for step in place)
    return shown.removeprefix(".")
