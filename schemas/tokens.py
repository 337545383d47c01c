"""Token ids as records carry them: little-endian int32, one behind the other."""

import struct
from collections.abc import Sequence

TOKEN_BYTES = 4


def pack(ids: Sequence[int]) -> bytes:
    """Return the bytes of token ids. Raises `struct.error` for a number that is no int32."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack(ids: bytes) -> list[int]:
    """Return the token ids of bytes, the inverse of `pack`. Raises ValueError for part of an id."""
    count, rest = divmod(len(ids), TOKEN_BYTES)
    if rest:
        raise ValueError(f"{len(ids)} bytes are not a run of int32 token ids")
    return list(struct.unpack(f"<{count}i", ids))
