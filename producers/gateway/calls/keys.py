"""Access control: session keys, API keys and the admin key. Pure.

A session key is `sf-<session>.<end>.<signature>`. Session and signature are in base64url. The key
is valid until `<end>`, in seconds since 1970. Session and end are signed with HMAC-SHA256 under the
secret that all gateways share. Any gateway reads a call's session from its key and keeps no list.
If the session is traced, the trace that opened it follows after a further dot. Comparing keys takes
the same time wherever they differ.
"""

import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from pydantic import SecretStr

from seamlessflow.infra.clock import now_ms
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import key_of

_PREFIX = "sf-"
_KEYS_KEPT = 8192
_LONGEST_END = 12
"""Most digits that a key's end may have."""
INVALID_KEY = "the API key is missing or not valid"
_VALID_MS = 86_400_000


class Keys:
    """A maker and checker for the keys that belong to one secret."""

    def __init__(
        self,
        secret: str,
        admin_key: str | None = None,
        api_keys: Mapping[str, SecretStr] | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._secret = secret.encode()
        self._clock = clock
        encoded = {name: key.get_secret_value().encode() for name, key in (api_keys or {}).items()}
        self._named = {self._digest(key): (name, key) for name, key in encoded.items()}
        self._admin_key = (admin_key or derived_admin_key(secret)).encode()
        # An agent makes all its calls with one key, so its signature is checked once.
        self._signed = lru_cache(_KEYS_KEPT)(self._read)

    def session_key(self, session_id: str, opened_in: str = "", end_ms: int | None = None) -> str:
        """Return a session's key, which its agent uses as API key until `end_ms`.

        It is valid for a day by default. `opened_in`: the `traceparent` that the session's calls
        belong to. It is not signed, since a client may name any other one itself.
        """
        last_ms = self._clock() + _VALID_MS if end_ms is None else end_ms
        named = session_id.encode()
        end = str(math.ceil(last_ms / 1000)).encode()
        key = f"{_PREFIX}{_text(named)}.{end.decode()}.{_text(self._signature(named, end))}"
        return f"{key}.{opened_in}" if opened_in else key

    def session_of(self, key: bytes) -> str | None:
        """Return a key's session, or None if this secret did not sign it.

        Raises `ApiError` (401) for a key that is no longer valid.
        """
        signed = self._signed(key)
        if signed is None:
            return None
        session, end = signed
        if self._clock() > end * 1000:
            at = datetime.fromtimestamp(end, UTC).isoformat()
            message = f"the key of this session expired at {at}: open another session"
            raise ApiError(401, message, code="session_key_expired")
        return session

    def _read(self, key: bytes) -> tuple[str, int] | None:
        """Return a key's session and end, or None if this secret did not sign it."""
        if not key.startswith(_PREFIX.encode()):
            return None
        named, end, signature, *_ = [*key.removeprefix(_PREFIX.encode()).split(b".", 3), b"", b""]
        if not end.isdigit() or len(end) > _LONGEST_END:
            return None
        session = _decoded(named)
        if not hmac.compare_digest(_decoded(signature), self._signature(session, end)):
            return None
        return session.decode(), int(end)

    def is_admin(self, key: bytes) -> bool:
        """Return whether this is the admin key."""
        return hmac.compare_digest(key, self._admin_key)

    def key_name(self, key: bytes) -> str | None:
        """Return an API key's name, or None if it is not in the settings."""
        # Found by a digest that a client cannot compute, so that it learns nothing from the search.
        name, expected = self._named.get(self._digest(key), (None, b""))
        return name if hmac.compare_digest(key, expected) else None

    def require_admin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `ApiError` (401, 403) unless the call has the admin key."""
        key = key_of(headers)
        if self.is_admin(key):
            return
        if self.session_of(key) is not None or self.key_name(key) is not None:
            raise ApiError(403, "this needs the admin key", code="admin_key_needed")
        raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def require_owner(self, headers: Mapping[bytes, bytes], session_id: str) -> None:
        """Raise `ApiError` (401, 403) unless the call has the admin key or the session's own."""
        if self.session_of(key_of(headers)) != session_id:
            self.require_admin(headers)

    def require_any(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `ApiError` (401) unless the call has a valid key of any kind."""
        key = key_of(headers)
        valid = self.session_of(key) is not None or self.key_name(key) is not None
        if not valid and not self.is_admin(key):
            raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def _signature(self, session: bytes, end: bytes) -> bytes:
        return hmac.digest(self._secret, end + b"." + session, "sha256")

    def _digest(self, key: bytes) -> bytes:
        return hmac.digest(self._secret, b"API key." + key, "sha256")


def derived_admin_key(secret: str) -> str:
    """Return the admin key that is used when the settings have none."""
    return "sf-admin-" + _text(hmac.digest(secret.encode(), b"admin key", "sha256"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(data: bytes) -> bytes:
    """Return the bytes that base64url text stands for; empty if it is not base64url."""
    try:
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except ValueError:
        return b""
