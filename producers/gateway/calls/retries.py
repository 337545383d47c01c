"""Headers by which a retry is recognized. Pure.

The vendors' clients count their retries. Codex (0.169.0) does not, but each of its requests has the
id of the user's turn. Within such a turn its history only grows, so an equal body is a retry.
"""

from collections.abc import Mapping

import orjson

from seamlessflow.producers.gateway.errors import bad

_KEY, _COUNT = b"idempotency-key", b"x-stainless-retry-count"
_CODEX = b"x-codex-turn-metadata"
_LONGEST_KEY = 256
_COUNT_DIGITS = 9


def retry_count(headers: Mapping[bytes, bytes]) -> int:
    """Return how often the client tried before, by its own count."""
    count = headers.get(_COUNT, b"")
    return int(count[:_COUNT_DIGITS]) if count.isdigit() else 0


def idempotency_key(headers: Mapping[bytes, bytes], body_hash: bytes) -> str | None:
    """Return the key that all tries of a turn share and no other call has, or None.

    Raises `ApiError` (400) if it is too long.
    """
    key = sent_key(headers)
    return _codex_key(headers.get(_CODEX, b""), body_hash) if key is None else key


def sent_key(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the client's `Idempotency-Key`, or None. Raises `ApiError` (400) if it is too long."""
    key = headers.get(_KEY)
    if key is None:
        return None
    if len(key) > _LONGEST_KEY:
        name = _KEY.decode()
        raise bad(name, f"{name} has {len(key)} bytes, which is over {_LONGEST_KEY}")
    # One character for each byte, so that different keys stay different.
    return key.decode("latin-1")


def _codex_key(metadata: bytes, body_hash: bytes) -> str | None:
    try:
        turn_id = orjson.loads(metadata)["turn_id"]
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(turn_id, str) or not 0 < len(turn_id) <= _LONGEST_KEY:
        return None
    return f"codex {turn_id} {body_hash.hex()}"
