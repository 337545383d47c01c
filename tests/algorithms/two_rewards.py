"""Agent that plays Trail and gives two named rewards: of the session, and of its first turn."""

from collections.abc import Mapping

from benchmarks.trail import agent
from benchmarks.trail.game import TrailTask
from seamlessflow.demo.agent import ModelEndpoint


async def run(task: TrailTask, session: ModelEndpoint) -> Mapping[str, object]:
    """Play one session; return its rewards by name. Raises the client's errors."""
    outcome = await agent.run(task, session)
    turns = outcome["turn_rewards"]
    assert isinstance(turns, Mapping)
    return {"rewards": {"reward": outcome["reward"], "first": next(iter(turns.values()), 0.0)}}
