"""Episodes of an adapter, without a gateway."""

import asyncio
from collections.abc import Callable

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient

LIMIT_S = 120.0
SESSION = AgentSession("s", "http://127.0.0.1:9/v1", "key", "default", 0, {}, SharedHttpClient(1))
Start = Callable[..., EnvironmentSpec]


async def results(
    spec: EnvironmentSpec, *tasks: bytes, processes: int = 1, live: int = 64
) -> list[object]:
    """Run the tasks at once; return their results and errors, in order."""
    agent = EnvironmentAgent(spec, processes, live, LIMIT_S)
    await agent.begin()
    try:
        async with asyncio.timeout(LIMIT_S):
            runs = [agent.run(task, SESSION) for task in tasks]
            return list(await asyncio.gather(*runs, return_exceptions=True))
    finally:
        await agent.close()


def only(spec: EnvironmentSpec, task: bytes = b"{}") -> object:
    [result] = asyncio.run(results(spec, task))
    return result
