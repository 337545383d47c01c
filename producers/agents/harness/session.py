"""Contract of an agent: what it gets and what it may return. To be read by authors of agents.

An agent is a callable, sync or async:

    async def run(task: dict, session: AgentSession) -> float | dict | None

`task` is one line of the task file. The agent calls `session.base_url` with `session.api_key`
through any OpenAI client; every call is recorded in this session. It returns its reward, or a
mapping with any of `reward`, `rewards` (further ones by name), `turn_rewards` (by the id of the
response: a number, which is the reward named `reward`, or a mapping by name), `status` (`complete`
or `truncated`) and the keys that its judge reads, or None if its rewards come from elsewhere:

    {"rewards": {"test": 1.0, "style": {"value": 0.5, "source": "model"}}}

A session needs those that `trainer.rewards` names, by default `reward` alone; further ones are
recorded and shown. A judge (`agents.reward`) returns the same; its rewards take the place of the
agent's of the same name. `source` is a label: `agent` or, of a judge, `verifier` if it is not said.
Rewards of turns are recorded; if the run's `trainer.advantage` uses none, the trainer warns of it
once. An exception ends the session as aborted, that of a judge as unrewarded; it ends no other
session, be it `StopIteration`, `exit`, a test's failure or `CancelledError`. A number is any real
one and any array without dimensions: scalars of numpy and torch too.

An agent that can start in the middle begins with `session.messages` if there are any; others are
forked by playback (docs/replay.md).

An async agent shares one event loop with all others and must not block it. A sync agent runs in a
thread of its own, which Python cannot stop: at its time limit its session is closed, and the
gateway refuses its further calls. An agent that goes on is reported (`ProgressStalled`), and once
as many do as `agents.concurrency` allows, the process ends with status 75, to be started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


class SharedHttpClient:
    """HTTP client for all sessions of a process, made when an agent first asks for it."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._client: httpx2.AsyncClient | None = None

    def get(self) -> httpx2.AsyncClient:
        """Return the client. Raises `ImportError` if `httpx2`, a part of `openai`, is missing."""
        if self._client is None:
            import httpx2  # agents with a client of their own do not need it

            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=self._connections
            )
            self._client = httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False)
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


@dataclass(frozen=True)
class AgentSession:
    """Open session, as its agent sees it."""

    session_id: str
    base_url: str
    """Base URL for an OpenAI client, ending in `/v1`."""
    api_key: str = field(repr=False)
    """Bearer token that names the session."""
    model: str
    """Name of the policy; what to pass as `model`."""
    deadline_ms: int
    """Time at which the agent is stopped, in milliseconds since 1970; later by the time in which
    no engine is ready."""
    metadata: Mapping[str, str]
    """Metadata of the task."""
    shared: SharedHttpClient = field(repr=False)
    turn_limit: int = 0
    """Turns that the session may have; 0: as many as its context holds."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Messages in OpenAI's chat form with which the agent begins: the history of the recorded
    session that this one is a fork of, and what was appended. Empty for a session that is none,
    and for an agent to which recorded answers are played back."""

    @property
    def http_client(self) -> httpx2.AsyncClient:
        """HTTP client shared by all sessions of the process.

        `AsyncOpenAI(http_client=session.http_client)` takes 50 microseconds; with an HTTP client of
        its own it takes 20 milliseconds.
        """
        return self.shared.get()
