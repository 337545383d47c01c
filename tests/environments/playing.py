"""Episodes of installed packages in sessions of the running system."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import directory, is_installed
from seamlessflow.producers.agents.harness.session import (
    AgentSession,
    AgentSessions,
    SharedHttpClient,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import unpack
from tests.e2e.running_system import POLICY, RunningSystem
from tests.environments.relay import Relay, relay

PROGRAMS = Path(__file__).parent / "programs"
"""Programs and modules that need a package's own Python."""

READY_S = 300.0
EPISODE_S = 120.0
_NEXT = iter(range(1_000_000))


@dataclass(frozen=True)
class Played:
    """An ended episode."""

    result: Mapping[str, Any]
    trajectory: r.Trajectory
    received: list[list[int]]
    """Ids that the package's client got, answer by answer."""
    seconds: float

    @property
    def sampled(self) -> list[list[int]]:
        """Ids of the policy on the log, turn by turn."""
        ids = unpack(self.trajectory.tokens)
        turns = (node for node in self.trajectory.nodes if node.origin == "policy")
        return [list(ids[turn.start : turn.start + turn.length]) for turn in turns]

    @property
    def chains(self) -> int:
        """Number of chains in the session: beginnings, and places where the history changes."""
        return sum(n for rule, n in self.trajectory.match_rules.items() if rule != "extend")


class Package:
    """An installed package whose episodes are sessions of the system. For one thread."""

    def __init__(self, spec: EnvironmentSpec, system: RunningSystem, relay: Relay) -> None:
        self.name = spec.name
        self._spec = spec
        self._system = system
        self._relay = relay
        self._agent = EnvironmentAgent(spec, 1, 64, READY_S)
        self._runner = asyncio.Runner()

    def tasks(self, directory: Path) -> list[dict[str, Any]]:
        """Return all tasks that it lists."""
        file = directory / "tasks.jsonl"
        self._runner.run(write_tasks(self._spec, file, print))
        return [orjson.loads(line) for line in file.read_bytes().splitlines()]

    def begin(self) -> None:
        """Start its process."""
        self._runner.run(self._agent.begin())

    def play(self, task: Mapping[str, Any]) -> Played:
        """Run an episode in a session, and end this with its reward."""
        session = self._opened()
        begun_s = time.monotonic()
        result: Any = self._runner.run(self._run(task, session))
        seconds = time.monotonic() - begun_s
        return self._played(session, result, seconds)

    def play_roles(self, task: Mapping[str, Any]) -> Mapping[str, Played]:
        """Run an episode in a session for each role, and end these with their rewards."""
        sessions = {role: self._opened() for role in self._spec.roles}
        begun_s = time.monotonic()
        results: Any = self._runner.run(self._run(task, sessions))
        seconds = time.monotonic() - begun_s
        return {
            role: self._played(session, results[role], seconds)
            for role, session in sessions.items()
        }

    def fail(self, task: Mapping[str, Any]) -> Exception:
        """Run an episode that fails; return its error."""
        try:
            result = self._runner.run(self._run(task, self._opened()))
        except Exception as error:
            return error
        raise AssertionError(f"it returned {result}")

    @contextmanager
    def failing_gateway(self) -> Iterator[None]:
        """Have each call fail with a server's error."""
        self._relay.failing = True
        try:
            yield
        finally:
            self._relay.failing = False

    def close(self) -> None:
        """End its process."""
        self._runner.run(self._agent.close())
        self._runner.close()

    def _opened(self) -> AgentSession:
        name = f"{self.name}-{next(_NEXT)}"
        answer = self._system.admin("/sessions", session_id=name, policy=POLICY)
        assert answer.status_code == 201, answer.text
        opened = answer.json()
        url = opened["base_url"].replace(self._system.url, self._relay.url)
        return AgentSession(name, url, opened["api_key"], POLICY, 0, {}, SharedHttpClient(1))

    def _played(self, session: AgentSession, result: Mapping[str, Any], seconds: float) -> Played:
        trajectory = self._system.end(session.session_id, float(result["reward"]))
        return Played(result, trajectory, self._relay.received[session.api_key], seconds)

    async def _run(self, task: Mapping[str, Any], session: AgentSessions) -> object:
        async with asyncio.timeout(EPISODE_S):
            return await self._agent.run(orjson.dumps(task), session)


@contextmanager
def installed(
    name: str,
    settings: Mapping[str, Any],
    system: RunningSystem,
    directory_of_logs: Path,
    roles: tuple[str, ...] = (),
) -> Iterator[Package]:
    """Yield a package. Fails, never skips, if it is not installed."""
    entry = KNOWN[name]
    assert is_installed(entry), f"seamlessflow environments install {name}"
    python = directory(entry) / "bin" / "python"
    log_file = directory_of_logs / f"{name}.log"
    spec = EnvironmentSpec(name, python, entry.adapter, settings, os.environ, log_file, roles)
    with relay(system.url) as server:
        package = Package(spec, system, server)
        try:
            yield package
        finally:
            package.close()
