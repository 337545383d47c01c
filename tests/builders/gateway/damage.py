"""Damaged requests: full ones with a few places changed, as bytes."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]

WORDS = ("", "x", "user", "tool", "robot", "auto", "text", "\x00", "😀", "ä" * 300, "1", "null")
NUMBERS = (0, 1, -1, 2**31, 2**63, 2**64 - 1, -(2**63), 1.5, -0.0, 1e308, 5e-324)
SHAPES: Sequence[Any] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    [{}],
    {"type": "text"},
    {"type": 1},
    {"": ""},
)
SPELLINGS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e400",
    b"1" * 400,
    b"18446744073709551616",
    b"-9223372036854775809",
    b'"\\ud800"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b'{"role":"user","role":"tool","content":"a","content":[]}',
    b"[" * 240 + b"]" * 240,
    b"[" * 800 + b"]" * 800,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"[" * 100_000,
    b"",
    b"undefined",
)
"""Bytes that no JSON library writes."""
_SPELT = "to be spelt: "

words = st.sampled_from(WORDS) | st.text(max_size=20)
values = (
    st.sampled_from((*SHAPES, *NUMBERS))
    | words
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.recursive(st.none() | words, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
    | st.integers(0, len(SPELLINGS) - 1).map(lambda number: f"{_SPELT}{number}")
)


def places(value: object, at: Place = ()) -> list[Place]:
    """Return the paths of all values inside `value`."""
    if isinstance(value, Mapping):
        inner = [((*at, name), part) for name, part in value.items()]
    elif isinstance(value, list):
        inner = [((*at, number), part) for number, part in enumerate(value)]
    else:
        return []
    return [place for where, part in inner for place in (where, *places(part, where))]


def spelt(body: object) -> bytes:
    """Return a value as JSON, or as something close to it."""
    data = json.dumps(body, ensure_ascii=False).encode()
    for number, spelling in enumerate(SPELLINGS):
        data = data.replace(f'"{_SPELT}{number}"'.encode(), spelling)
    return data


@st.composite
def damaged(draw: st.DrawFn, whole: Mapping[str, Any]) -> bytes:
    """Return `whole` with up to three places dropped, replaced, repeated, nested or moved."""
    body: Any = deepcopy(dict(whole))
    for _ in range(draw(st.integers(1, 3))):
        all_places = places(body)
        if not all_places:
            break
        _damage(draw, body, draw(st.sampled_from(all_places)), all_places)
    return spelt(body)


def _damage(draw: st.DrawFn, body: Any, place: Place, all_places: list[Place]) -> None:
    *before, last = place
    holder = _at(body, tuple(before))
    match draw(st.sampled_from(("drop", "replace", "replace", "nest", "move", "repeat"))):
        case "drop":
            del holder[last]
        case "replace":
            holder[last] = _storable(deepcopy(draw(values)))
        case "nest":
            holder[last] = _nested(holder[last], draw(st.integers(1, 40)))
        case "move":
            holder[last] = deepcopy(_at(body, draw(st.sampled_from(all_places))))
        case "repeat":
            holder[last] = [deepcopy(holder[last])] * draw(st.sampled_from((2, 17, 400)))


def _at(body: Any, place: Place) -> Any:
    for step in place:
        body = body[step]
    return body


def _nested(value: Any, depth: int) -> Any:
    """Return a value nested in itself if it has lists, otherwise in lists of one."""
    lists = [p for p in places(value) if isinstance(_at(value, p), list)]
    nested = value
    for _ in range(depth):
        if lists:
            outer = deepcopy(value)
            *before, last = lists[0]
            _at(outer, tuple(before))[last] = [nested]
            nested = outer
        else:
            nested = [nested]
    return nested


def _storable(value: Any) -> Any:
    """JSON writers here stop at 64 bits; a wider number is spelt out as one that is."""
    wide = isinstance(value, int) and not -(2**63) <= value < 2**64
    return f"{_SPELT}4" if wide else value
