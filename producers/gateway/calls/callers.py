"""Whose session a call belongs to, without a change to the agent. Pure.

A session's own token, or a path with the admin key, says its id, which never means another session
of the same name. With an API key the path or the agent's native header names it, else the key
itself: such a session begins with its first request and, once it was closed, anew with the next.
Sub-agents that name their parent's session are part of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from producers.gateway.calls.keys import INVALID_KEY, Keys, bearer
from producers.gateway.errors import ApiError
from producers.gateway.settings import GatewaySection
from schemas.records import SessionTerms

SESSION_HEADERS = (
    b"x-parent-session-id",  # OpenCode: the session that started this sub-agent
    b"x-session-id",  # OpenCode, and whoever sets it
    b"x-claude-code-session-id",
    b"session-id",  # Codex
    b"session_id",  # Codex before it renamed it
)
"""The first that is there counts."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
_LONGEST_AGENT = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """A call's session; `terms` where it begins with the call if none of the name is open."""

    session_id: str
    terms: SessionTerms | None = None


class Callers:
    """Finds the session of each call."""

    def __init__(self, keys: Keys, opening: GatewaySection) -> None:
        self._keys = keys
        self._opening = opening

    def caller(self, headers: Mapping[bytes, bytes], path: str | None) -> Caller:
        """The session of a call; `path` is what its URL names. Raises `ApiError` (400-403)."""
        token = bearer(headers)
        session = self._keys.session_of(token)
        if session is not None:
            if path not in (None, session):
                raise ApiError(403, "the API key is another session's", code="wrong_session")
            return Caller(session)
        if self._keys.is_admin(token):
            return self._admin(headers, path)
        key_name = self._keys.key_name(token)
        if key_name is None:
            raise ApiError(401, INVALID_KEY, code="invalid_api_key")
        named = _name("session", path) if path else named_by_header(headers)
        return self._begins(key_name if named is None else f"{key_name}.{named}", headers)

    def _admin(self, headers: Mapping[bytes, bytes], path: str | None) -> Caller:
        if path is not None:
            return Caller(path)
        named = named_by_header(headers)
        if named is None:
            message = "the admin key stands for no session: use /sessions/{id}/v1 or x-session-id"
            raise ApiError(401, message, code="session_needed")
        return self._begins(named, headers)

    def _begins(self, name: str, headers: Mapping[bytes, bytes]) -> Caller:
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
    """The session that a harness's own header names. Raises `ApiError` for what is no name."""
    for header in SESSION_HEADERS:
        value = headers.get(header, b"").decode("utf-8", "replace")
        if value:
            return _name(header.decode(), value)
    return None


def _name(param: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        detail = f"{param} must be 1 to 200 letters, digits and . _ : @ -"
        raise ApiError(400, detail, code="invalid_value", param=param)
    return value
