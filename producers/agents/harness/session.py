"""What an agent gets, and what it may give back: all that somebody who writes an agent must know.

An agent is a callable, sync or async:

    async def run(task: dict, session: AgentSession) -> float | dict | None

`task` is one line of the task file. The agent talks to `session.base_url` with `session.api_key`
by any OpenAI client; every call is recorded in this session. It returns its reward, or a mapping
with any of `reward` (terminal), `rewards` (further judgements by name), `turn_rewards` (by the id
of the response), `status` (`complete` or `truncated`) and whatever its judge needs, or None when
its reward comes from elsewhere. What it raises ends the session as aborted.

An async agent shares one event loop with all others and must not block it; a sync one runs in a
thread of its own, which Python cannot stop: past its time limit its session is closed and its
further calls are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


class SharedHttpClient:
    """One HTTP client for the sessions of a process, made when an agent first asks for it."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._client: httpx2.AsyncClient | None = None

    def get(self) -> httpx2.AsyncClient:
        """The client. Raises `ImportError` where `httpx2` (which `openai` brings) is missing."""
        if self._client is None:
            import httpx2  # not needed by agents that bring a client of their own

            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=self._connections
            )
            self._client = httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False)
        return self._client

    async def close(self) -> None:
        """Closes its connections."""
        if self._client is not None:
            await self._client.aclose()


@dataclass(frozen=True)
class AgentSession:
    """An open session, as its agent sees it."""

    session_id: str
    base_url: str
    """Base URL for an OpenAI client, ending in `/v1`."""
    api_key: str = field(repr=False)
    """Bearer token that names the session."""
    model: str
    """Name of the policy; what to pass as `model`."""
    deadline_ms: int
    """When the agent is stopped, in milliseconds since the epoch."""
    metadata: Mapping[str, str]
    """Metadata of the task."""
    shared: SharedHttpClient = field(repr=False)

    @property
    def http_client(self) -> httpx2.AsyncClient:
        """HTTP client shared by all sessions of the process: `AsyncOpenAI(http_client=...)` with it
        costs 50 microseconds where one with a client of its own costs 20 milliseconds."""
        return self.shared.get()
