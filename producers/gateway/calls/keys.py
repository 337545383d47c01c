"""Who may do what: session tokens, the admin key. Pure.

A session token is `sf-<session>.<signature>`, both base64url, signed with HMAC-SHA256 under the
gateways' common secret; so any gateway knows the session of a call and none keeps a list.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache

from pydantic import SecretStr

from producers.gateway.errors import ApiError

_PREFIX = "sf-"
_TOKENS_KEPT = 8192
_BEARER = b"bearer "
INVALID_KEY = "the API key is missing or not valid"


class Keys:
    """Makes and checks the keys that belong to one secret."""

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
        self.session_of = lru_cache(_TOKENS_KEPT)(self._session_of)
        """The session a token stands for; none when it was not signed with this secret."""

    def session_token(self, session_id: str) -> str:
        """The API key that stands for a session."""
        named = session_id.encode()
        return f"{_PREFIX}{_text(named)}.{_text(self._signature(named))}"

    def _session_of(self, token: bytes) -> str | None:
        named, dot, signature = token.removeprefix(_PREFIX.encode()).partition(b".")
        if not dot or not token.startswith(_PREFIX.encode()):
            return None
        session = _decoded(named)
        if not hmac.compare_digest(_decoded(signature), self._signature(session)):
            return None
        return session.decode()

    def is_admin(self, token: bytes) -> bool:
        """Whether this is the admin key."""
        return hmac.compare_digest(token, self._admin_key)

    def key_name(self, token: bytes) -> str | None:
        """The name of an API key; none when it is not one."""
        return self._names.get(_digest(token))

    def require_admin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises `ApiError` (401, 403) unless the call carries the admin key."""
        token = bearer(headers)
        if self.is_admin(token):
            return
        if self.session_of(token) is not None or self.key_name(token) is not None:
            raise ApiError(403, "this needs the admin key", code="admin_key_needed")
        raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def require_any(self, headers: Mapping[bytes, bytes]) -> None:
        """Raises `ApiError` (401) unless the call carries a key of any kind."""
        token = bearer(headers)
        known = self.session_of(token) is not None or self.key_name(token) is not None
        if not known and not self.is_admin(token):
            raise ApiError(401, INVALID_KEY, code="invalid_api_key")

    def _signature(self, session: bytes) -> bytes:
        return hmac.digest(self._secret, session, "sha256")


def derived_admin_key(secret: str) -> str:
    """The admin key where none is set."""
    return "sf-admin-" + _text(hmac.digest(secret.encode(), b"admin key", "sha256"))


def bearer(headers: Mapping[bytes, bytes]) -> bytes:
    """The token of a call, as a bearer or else as `x-api-key`; empty without one."""
    value = headers.get(b"authorization", b"")
    if value[: len(_BEARER)].lower() == _BEARER:
        return value[len(_BEARER) :].strip()
    return headers.get(b"x-api-key", b"").strip()


def _digest(key: bytes) -> bytes:
    """Looking a key up by its digest takes as long for a wrong one as for a right one."""
    return hashlib.sha256(key).digest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(data: bytes) -> bytes:
    """What base64url text stands for; empty when it is none."""
    try:
        return urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except ValueError:
        return b""
