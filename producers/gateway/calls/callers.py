"""The session that a call belongs to, found without any change to the agent. Pure.

A session's own key, or a path with the admin key, gives the session's id, which stands for this one
session. With an API key, the path or else the agent's own header gives a name; without either, the
key's name is used. A session with a name begins with its first request; after it was closed, the
next request begins another one. Sub-agents that name their parent's session are part of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.infra.worker.tags import read_wishes
from seamlessflow.producers.gateway.calls.keys import INVALID_KEY, Keys
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import key_of
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.records import SessionTerms

SESSION_HEADERS = (
    b"x-parent-session-id",  # OpenCode: the session that started this sub-agent
    b"x-session-id",  # OpenCode, and any client that sets it
    b"x-claude-code-session-id",
    b"session-id",  # Codex
    b"session_id",  # Codex before it renamed it
)
"""Headers that name a session; the first one present counts."""

TAGS_HEADER = b"x-seamlessflow-tags"
"""Header with the tags that a call asks for of its worker."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
_LONGEST_AGENT = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """The session of a call. With `terms` the call begins it if no session of this name is open."""

    session_id: str
    terms: SessionTerms | None = None


class Callers:
    """A finder of the session of each call."""

    def __init__(self, keys: Keys, opening: GatewaySection) -> None:
        self._keys = keys
        self._opening = opening

    def caller(self, headers: Mapping[bytes, bytes], path: str | None) -> Caller:
        """Return a call's session; `path` is the one in its URL. Raises `ApiError` (400-403)."""
        key = key_of(headers)
        session = self._keys.session_of(key)
        if session is not None:
            if path not in (None, session):
                raise ApiError(403, "the API key is another session's", code="wrong_session")
            return Caller(session)
        if self._keys.is_admin(key):
            return self._admin(headers, path)
        key_name = self._keys.key_name(key)
        if key_name is None:
            raise ApiError(401, INVALID_KEY, code="invalid_api_key")
        named = _name("session", path) if path else named_by_header(headers)
        return self._by_name(key_name if named is None else f"{key_name}.{named}", headers)

    def _admin(self, headers: Mapping[bytes, bytes], path: str | None) -> Caller:
        if path is not None:
            return Caller(path)
        named = named_by_header(headers)
        if named is None:
            message = "the admin key stands for no session: use /sessions/{id}/v1 or x-session-id"
            raise ApiError(401, message, code="session_needed")
        return self._by_name(named, headers)

    def _by_name(self, name: str, headers: Mapping[bytes, bytes]) -> Caller:
        opening = self._opening
        agent = headers.get(b"x-seamlessflow-agent") or headers.get(b"user-agent", b"")
        terms = SessionTerms(
            policy=opening.policy,
            policies=opening.modules,
            agent=agent[:_LONGEST_AGENT].decode("utf-8", "replace"),
            max_age_ms=int(opening.session_age_s * 1000),
            max_idle_ms=int(opening.session_idle_s * 1000),
        )
        return Caller(name, terms)


def named_by_header(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the session that an agent's own header names, or None. Raises `ApiError` (400)."""
    for header in SESSION_HEADERS:
        value = headers.get(header, b"").decode("utf-8", "replace")
        if value:
            return _name(header.decode(), value)
    return None


def wishes_in(headers: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """Return the tags that a call asks for of its worker. Raises `ApiError` (400)."""
    sent = headers.get(TAGS_HEADER)
    if not sent:
        return ()
    try:
        return read_wishes(sent.decode("utf-8", "replace"))
    except ValueError as error:
        param = TAGS_HEADER.decode()
        message = f"{param}: {error}"
        raise ApiError(400, message, code="invalid_value", param=param) from error


def _name(param: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        detail = f"{param} must be 1 to 200 letters, digits and . _ : @ -"
        raise ApiError(400, detail, code="invalid_value", param=param)
    return value
