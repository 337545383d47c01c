"""Tokens as records carry them: their ids, the origins of their nodes, and their versions.

Ids are little-endian int32, one behind the other.
"""

import struct
from collections.abc import Sequence

from seamlessflow.schemas.records import VersionSpan

TOKEN_BYTES = 4
POLICY = "policy"
"""Origin of tokens that were sampled in the session itself."""
FORKED = "forked"
"""Origin of tokens that were sampled in the session from which this one was forked."""
FOREIGN = "foreign"
"""Origin of tokens that another system sampled, and the reason why they are masked."""


def of_exact_version(span: VersionSpan) -> bool:
    """Return True if the version that sampled each token of the span is known."""
    return span.version_min == span.version_max


def pack(ids: Sequence[int]) -> bytes:
    """Return the bytes of token ids. Raises `struct.error` for a number that is no int32."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack(ids: bytes) -> list[int]:
    """Return the token ids of bytes, the inverse of `pack`. Raises ValueError for part of an id."""
    count, rest = divmod(len(ids), TOKEN_BYTES)
    if rest:
        raise ValueError(f"{len(ids)} bytes are not a run of int32 token ids")
    return list(struct.unpack(f"<{count}i", ids))
