"""Deltas of a streamed answer, cut into parts of one kind each. Pure.

The manager merges the deltas that it reads together, and a fast engine samples several kinds at
once. Clients take the kinds of a chunk for exclusive: some read its text and skip its calls, some
read its first call alone. So no event of any dialect has more than one kind, or more than one call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

_CALLS = b'"tool_calls":'
_TEXTS = ("reasoning_content", "content")
_NAMED = tuple(b'"%b":' % name.encode() for name in _TEXTS)


def delta_parts(delta: bytes) -> Sequence[bytes]:
    """Return deltas that hold reasoning, text or one call each, in the order of sampling.

    More of a call that has begun comes first. A delta of one kind is returned as it is.
    """
    # In a text these names would stand behind backslashes: the usual delta needs no reading.
    if _CALLS not in delta and not all(name in delta for name in _NAMED):
        return (delta,)
    parts = list(_parts(orjson.loads(delta)))
    return (delta,) if len(parts) < 2 else [orjson.dumps(part) for part in parts]


def _parts(read: Mapping[str, Any]) -> Iterator[Mapping[str, object]]:
    calls = read.get("tool_calls") or ()
    yield from ({"tool_calls": [call]} for call in calls if "id" not in call)
    yield from ({name: read[name]} for name in _TEXTS if read.get(name))
    yield from ({"tool_calls": [call]} for call in calls if "id" in call)
