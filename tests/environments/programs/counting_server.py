"""An OpenEnv server on a port: a world that ends once its counter reaches a goal.

    python counting_server.py PORT

Each reset names the goal and whether the world gives rewards. A negative number ends the server.
"""

import os
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Add(Action):
    amount: int


class Count(Observation):
    shown: str = ""


class Counter(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, goal=5, scored=True, cue="") -> Count:
        self._count, self._goal, self._scored = 0, goal, scored
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


app = create_fastapi_app(Counter, Add, Count, max_concurrent_envs=4)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
