"""Episodes of installed packages, against a policy with a script."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.venvs import directory, is_installed
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient
from tests.builders.policy_server import Answer, PolicyServer, policy_server

LIMIT_S = 120.0


@dataclass(frozen=True)
class Ended:
    """An ended episode: its result or error, and what the policy was asked."""

    result: Any
    requests: list[dict[str, Any]]


class RunningEnvironment:
    """A package's process with a policy, for one episode after the other."""

    def __init__(self, agent: EnvironmentAgent, policy: PolicyServer, loop: asyncio.Runner) -> None:
        self._agent = agent
        self._policy = policy
        self._loop = loop

    def run(self, task: Mapping[str, Any], *answers: Answer) -> Ended:
        """Run an episode in which the policy gives these answers."""
        key = f"key-{len(self._policy.scripts)}"
        self._policy.scripts[key] = list(answers)
        session = AgentSession(
            key, self._policy.base_url, key, "default", 0, {}, SharedHttpClient(1)
        )
        episode = asyncio.wait_for(self._agent.run(orjson.dumps(task), session), LIMIT_S)
        [result] = self._loop.run(_gathered(episode))
        return Ended(result, self._policy.requests[key])


@contextmanager
def running(spec: EnvironmentSpec) -> Iterator[RunningEnvironment]:
    """Yield a started environment."""
    with policy_server() as policy, asyncio.Runner() as loop:
        agent = EnvironmentAgent(spec, 1, 64, LIMIT_S)
        loop.run(agent.begin())
        try:
            yield RunningEnvironment(agent, policy, loop)
        finally:
            loop.run(agent.close())


def installed(name: str, settings: Mapping[str, Any], logs: Path) -> EnvironmentSpec:
    """Return what a package's environment is started from; skip the test if it is not there."""
    package = KNOWN[name]
    if not is_installed(package):
        pytest.skip(f"{name} is not installed: seamlessflow environments install {name}")
    python = directory(package) / "bin" / "python"
    log_file = logs / "environment.log"
    return EnvironmentSpec(name, python, package.adapter, settings, os.environ, log_file)


async def _gathered(episode: Any) -> list[Any]:
    return list(await asyncio.gather(episode, return_exceptions=True))
