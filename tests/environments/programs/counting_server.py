"""An OpenEnv server on a port: a world that ends once its counter reaches a goal.

    python counting_server.py PORT [tools]

Each reset names the goal and whether the world gives rewards. A negative number ends the server.
With `tools` the world lists a tool of its own, else its actions are a number each.
"""

import os
import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import (
    Action,
    CallToolAction,
    CallToolObservation,
    Environment,
    Observation,
    State,
    create_fastapi_app,
)
from openenv.core.env_server.mcp_environment import MCPEnvironment


class Add(Action):
    amount: int


class Count(Observation):
    shown: str = ""


class Counter(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, goal=5, scored=True, cue="") -> Count:
        self._count = 0
        self._goal = goal
        self._scored = scored
        return Count(shown=f"{cue}Count to {goal}.")

    def step(self, action: Add, timeout_s=None) -> Count:
        if action.amount < 0:
            os._exit(3)
        self._count += action.amount
        done = self._count >= self._goal
        reward = float(self._count == self._goal) if self._scored else None
        return Count(shown=f"You are at {self._count}.", done=done, reward=reward)

    @property
    def state(self) -> State:
        return State()


class CounterWithTool(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("counter")

        @mcp.tool
        def add(amount: int) -> str:
            """Add a number."""
            self._count += amount
            return f"You are at {self._count}."

        super().__init__(mcp)

    def reset(self, seed=None, episode_id=None, goal=5, cue="") -> Observation:
        self._count = 0
        self._goal = goal
        return Observation(metadata={"shown": f"{cue}Count to {goal}."})

    async def step_async(self, action: Action, timeout_s=None, **more) -> Observation:
        seen = await super().step_async(action, timeout_s, **more)
        if isinstance(action, CallToolAction):
            seen.done = self._count >= self._goal
            seen.reward = float(self._count == self._goal)
        return seen

    def _step_impl(self, action: Action, timeout_s=None, **more) -> Observation:
        raise ValueError("an action is a call of a tool")

    @property
    def state(self) -> State:
        return State()


if sys.argv[2:] == ["tools"]:
    app = create_fastapi_app(
        CounterWithTool, CallToolAction, CallToolObservation, max_concurrent_envs=4
    )
else:
    app = create_fastapi_app(Counter, Add, Count, max_concurrent_envs=4)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
