"""Access control: session keys, API keys and the admin key. Pure.

A session key is `sf-<session>.<signature>`, both in base64url, signed with HMAC-SHA256 under the
secret that all gateways share. Any gateway reads a call's session from its key and keeps no list.
Behind a further dot stands the trace in which the session was opened, if it is traced.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache

from pydantic import SecretStr

from producers.gateway.errors import ApiError
from producers.gateway.exchange import key_of

_PREFIX = "sf-"
_KEYS_KEPT = 8192
INVALID_KEY = "the API key is missing or not valid"


class Keys:
    """A maker and checker of the keys that belong to one secret."""

    def __init__(
        self,
        secret: str,
        admin_key: str | None = None,
        api_keys: Mapping[str, SecretStr] | None = None,
    ) -> None:
        self._secret = secret.encode()
        self._names = {
            _digest(key.get_secret_value().encode()): name for name, key in (api_keys or {}).items()
        }
        self._admin_key = (admin_key or derived_admin_key(secret)).encode()
        # An agent makes all its calls with one key, so its signature is checked once.
        self.session_of = lru_cache(_KEYS_KEPT)(self._session_of)
        """Function that returns the session of a key, or None if this secret did not sign it."""

    def session_key(self, session_id: str, opened_in: str = "") -> str:
        """Return the key of a session, which its agent uses as its API key.

        `opened_in`: the `traceparent` that the session's calls belong to; not signed, since a
        client may name any other one itself.
        """
        named = session_id.encode()
        key = f"{_PREFIX}{_text(named)}.{_text(self._signature(named))}"
        return f"{key}.{opened_in}" if opened_in else key

    def _session_of(self, key: bytes) -> str | None:
        named, dot, signature = key.removeprefix(_PREFIX.encode()).partition(b".")
        if not dot or not key.startswith(_PREFIX.encode()):
            return None
        session = _decoded(named)
        signature = signature.partition(b".")[0]
        if not hmac.compare_digest(_decoded(signature), self._signature(session)):
            return None
        return session.decode()

    def is_admin(self, key: bytes) -> bool:
        """Return whether this is the admin key."""
        return hmac.compare_digest(key, self._admin_key)

    def key_name(self, key: bytes) -> str | None:
        """Return the name of an API key, or None if it is not in the settings."""
        return self._names.get(_digest(key))

    def require_admin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `ApiError` (401, 403) unless the call has the admin key."""
        key = key_of(headers)
        if self.is_admin(key):
            return
        if self.session_of(key) is not None or self.key_name(key) is not None:
            raise ApiError(403, "this needs the admin key", code="admin_key_needed")
        raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def require_any(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `ApiError` (401) unless the call has a valid key of any kind."""
        key = key_of(headers)
        known = self.session_of(key) is not None or self.key_name(key) is not None
        if not known and not self.is_admin(key):
            raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def _signature(self, session: bytes) -> bytes:
        return hmac.digest(self._secret, session, "sha256")


def derived_admin_key(secret: str) -> str:
    """Return the admin key that is used when the settings have none."""
    return "sf-admin-" + _text(hmac.digest(secret.encode(), b"admin key", "sha256"))


def _digest(key: bytes) -> bytes:
    # A lookup by digest takes as long for a wrong key as for a right one.
    return hashlib.sha256(key).digest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(data: bytes) -> bytes:
    """Return the bytes that base64url text stands for; empty if it is not base64url."""
    try:
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except ValueError:
        return b""
