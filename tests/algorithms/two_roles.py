"""Agent that plays Trail in the sessions of two roles at once, each with its own reward."""

import asyncio
from collections.abc import Mapping

from benchmarks.trail import agent
from benchmarks.trail.game import TrailTask
from seamlessflow.demo.agent import ModelEndpoint


async def run(task: TrailTask, sessions: Mapping[str, ModelEndpoint]) -> Mapping[str, object]:
    """Play one episode; return the outcome of each role. Raises the client's errors."""
    outcomes = await asyncio.gather(*(agent.run(task, session) for session in sessions.values()))
    return dict(zip(sessions, outcomes, strict=True))
