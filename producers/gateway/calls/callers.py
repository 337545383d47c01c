"""The caller, found from a call's headers and path without any change to the agent. Pure.

The headers show which session a call belongs to, which tags it asks for, and if it is a retry.

A session's own key gives the session's id, and so does a path with the admin key. The id stands for
this one session. With an API key, the path or else the agent's own header gives a name. Without
either, the key's name is used. A session with a name begins with its first request. After it was
closed, the next request begins a new session. Sub-agents that name their parent's session are part
of it.

The vendors' clients count their retries. Codex (0.169.0) does not, but each of its requests has the
id of the user's turn. Within such a turn its history only grows, so an equal body is a retry.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from seamlessflow.infra.worker.tags import read_wishes
from seamlessflow.producers.gateway.calls.keys import INVALID_KEY, Keys
from seamlessflow.producers.gateway.errors import ApiError, bad
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
"""Header with the tags that a call wants its worker to have."""

MODULE_HEADER, AGENT_HEADER = b"x-seamlessflow-module", b"x-seamlessflow-agent"
"""Headers with the calling agent's module, and with its name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
_LONGEST_AGENT = 200
_RETRY_KEY = b"idempotency-key"
_RETRY_COUNT = b"x-stainless-retry-count"
_CODEX_TURN = b"x-codex-turn-metadata"
_LONGEST_KEY = 256
_COUNT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Caller:
    """A call's session. With `terms`, the call begins it if no session with this name is open."""

    session_id: str
    terms: SessionTerms | None = None


class Callers:
    """A finder for each call's session."""

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
        agent = headers.get(AGENT_HEADER) or headers.get(b"user-agent", b"")
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
        if value := text_in(headers, header):
            return _name(header.decode(), value)
    return None


def text_in(headers: Mapping[bytes, bytes], header: bytes) -> str:
    """Return a header as text; empty if it is missing."""
    return headers.get(header, b"").decode("utf-8", "replace")


def wishes_in(headers: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """Return the tags that a call wants its worker to have. Raises `ApiError` (400)."""
    sent = text_in(headers, TAGS_HEADER)
    if not sent:
        return ()
    try:
        return read_wishes(sent)
    except ValueError as error:
        param = TAGS_HEADER.decode()
        message = f"{param}: {error}"
        raise ApiError(400, message, code="invalid_value", param=param) from error


def retry_count(headers: Mapping[bytes, bytes]) -> int:
    """Return how often the client tried before, by its own count."""
    count = headers.get(_RETRY_COUNT, b"")
    return int(count[:_COUNT_DIGITS]) if count.isdigit() else 0


def idempotency_key(headers: Mapping[bytes, bytes], body_hash: bytes) -> str | None:
    """Return the key that a turn's tries share and no other call has, or None.

    Raises `ApiError` (400) if it is too long.
    """
    key = sent_key(headers)
    metadata = headers.get(_CODEX_TURN)
    return _codex_key(metadata, body_hash) if key is None and metadata else key


def sent_key(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the client's `Idempotency-Key`, or None. Raises `ApiError` (400) if it is too long."""
    key = headers.get(_RETRY_KEY)
    if key is None:
        return None
    if len(key) > _LONGEST_KEY:
        name = _RETRY_KEY.decode()
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


def _name(param: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        detail = f"{param} must be 1 to 200 letters, digits and . _ : @ -"
        raise ApiError(400, detail, code="invalid_value", param=param)
    return value
