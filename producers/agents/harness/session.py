"""Contract of an agent: what it gets and what it may return. Authors of agents read this.

An agent is a callable, sync or async:

    async def run(task: dict, session: AgentSession) -> float | dict | None

`task` is one line of the task file. The agent calls `session.base_url` with `session.api_key`
through any OpenAI client; every call is recorded in this session. It returns its reward, a mapping,
or None if its rewards come from elsewhere. The mapping may have:

- `reward`
- `rewards`: further ones by name
- `turn_rewards`: by the id of the response, a number (the reward named `reward`) or a mapping by
  name
- `status`: `complete` or `truncated`
- the keys that its judge reads

For example:

    {"rewards": {"test": 1.0, "style": {"value": 0.5, "source": "model"}}}

A session needs the rewards that `trainer.rewards` names, by default only `reward`. Further ones
are recorded and shown. A judge (`agents.reward`) returns the same kinds of results. Its rewards
replace the agent's with the same names. `source` is a label. Without it, an agent's rewards have
the label `agent`, a judge's `verifier`. Rewards for turns are recorded. If the run's
`trainer.advantage` uses none, the trainer warns once.

An exception ends the session as aborted, a judge's exception as unrewarded. It ends no other
session, not even `StopIteration`, `exit`, a test's failure or `CancelledError`. A number is any
real number or any array without dimensions, so numpy's and torch's scalars too.

Where `agents.roles` names roles, `session` is a mapping from each role to its session. The agent
then returns a mapping from each role to such a result (docs/agents/roles.md).

An agent that can start in the middle begins with `session.messages` if there are any. Others are
forked by playback (docs/replay.md).

An async agent shares one event loop with all others and must not block it. A sync agent runs in its
own thread, which Python cannot stop. At its time limit its session is closed, and the gateway
refuses its further calls. An agent that goes on is reported (`ProgressStalled`). Once
`agents.concurrency` agents do so, the process ends with status 75, to be started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


class SharedHttpClient:
    """HTTP client that a process's sessions share, made when an agent first asks for it."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._client: httpx2.AsyncClient | None = None

    def get(self) -> httpx2.AsyncClient:
        """Return the client. Raises `ImportError` if `httpx2`, a part of `openai`, is missing."""
        if self._client is None:
            import httpx2  # agents with their own client do not need it

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
    """Time at which the agent is stopped, in milliseconds since 1970. It moves later by the time in
    which no engine is ready."""
    metadata: Mapping[str, str]
    """The task's metadata."""
    shared: SharedHttpClient = field(repr=False)
    turn_limit: int = 0
    """Turns that the session may have; 0: as many as its context holds."""
    messages: Sequence[Mapping[str, Any]] = ()
    """Messages in OpenAI's chat form that the agent begins with.

    They are the history of the recorded session that this one forks, and what was appended. There
    are none for a session that is no fork, or for an agent that gets recorded answers by playback.
    """

    @property
    def http_client(self) -> httpx2.AsyncClient:
        """HTTP client shared by all sessions in the process.

        `AsyncOpenAI(http_client=session.http_client)` takes 50 microseconds; with its own HTTP
        client it takes 20 milliseconds.
        """
        return self.shared.get()


AgentSessions = AgentSession | Mapping[str, AgentSession]
"""An agent's argument: its session, or a session for each role of the episode."""


def each_session(sessions: AgentSessions) -> list[AgentSession]:
    """Return an episode's sessions."""
    return [sessions] if isinstance(sessions, AgentSession) else list(sessions.values())
