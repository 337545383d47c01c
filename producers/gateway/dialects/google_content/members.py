"""Object members in Google's JSON, and the thoughts in its signatures. Pure.

As at the vendor, a member may be written in camel case (`systemInstruction`) or in snake case.

The vendor's clients get no thoughts unless they ask for them. But they send a part's
`thoughtSignature` back unchanged. So the gateway's signature holds the thought itself, which is not
secret. The history then has what was sampled.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from seamlessflow.producers.gateway.errors import bad

_SNAKE = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
_OWN = b"seamlessflow:"
_URL_SAFE = str.maketrans("+/", "-_")


def camel(name: str) -> str:
    """Return a member's name in camel case."""
    return _SNAKE.sub(lambda match: match[1].upper(), name) if "_" in name else name


def at(place: str, name: str) -> str:
    """Return a member's place in the object at `place`; the body itself is at ""."""
    return f"{place}.{name}" if place else name


def members(place: str, value: object) -> dict[str, Any]:
    """Return an object's members that are not null, by names in camel case. Raises `ApiError`."""
    if not isinstance(value, dict):
        raise bad(place, f"{place} must be an object")
    read: dict[str, Any] = {}
    for name, member in value.items():
        if member is None:
            continue
        camel_name = camel(name)
        if camel_name in read:
            raise bad(
                at(place, camel_name), f"{at(place, camel_name)} is there twice, also as {name!r}"
            )
        read[camel_name] = member
    return read


def listed(place: str, value: object) -> list[Any]:
    """Return a list. A lone object becomes a list of one, as at the vendor. Raises `ApiError`."""
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise bad(place, f"{place} must be a list")
    return value


def signature(thought: str) -> str:
    """Return the signature that holds a thought."""
    return urlsafe_b64encode(_OWN + thought.encode()).decode()


def signed_thought(sent: object) -> str:
    """Return the thought in a signature that the gateway made; empty for any other signature."""
    if not isinstance(sent, str):
        return ""
    data = sent.translate(_URL_SAFE).rstrip("=")
    try:
        held = urlsafe_b64decode(data + "=" * (-len(data) % 4))
        return held.removeprefix(_OWN).decode() if held.startswith(_OWN) else ""
    except ValueError:
        return ""
