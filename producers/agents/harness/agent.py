"""The two kinds of agent behind one protocol: a Python callable, or any command line.

Both are started, watched and stopped by `episode.py`.
"""

from concurrent.futures import Executor
from typing import Protocol

import orjson

from producers.agents.harness.command import Command, CommandFailed
from producers.agents.harness.loading import Callback, invoke
from producers.agents.harness.session import AgentSession


class Agent(Protocol):
    """Something that works on tasks through a session."""

    async def run(self, payload: bytes, session: AgentSession) -> object:
        """What the agent gives back, see `session.py`. Raises what the agent raises.

        Being cancelled stops the agent, where that can be done.
        """


class CallableAgent:
    """`function(task, session)`."""

    def __init__(self, function: Callback, threads: Executor) -> None:
        self._function = function
        self._threads = threads

    async def run(self, payload: bytes, session: AgentSession) -> object:
        return await invoke(self._function, self._threads, orjson.loads(payload), session)


class CommandAgent:
    """A program: the task on its standard input, its reward on the last line of its output.

    The last line counts if it is a JSON object, or a number. Exit status 0 is success, 75 (try
    again) blames the infrastructure, any other is a crash.
    """

    def __init__(self, command: Command) -> None:
        self._command = command

    async def run(self, payload: bytes, session: AgentSession) -> object:
        done = await self._command.run(payload, session)
        if done.exit_status != 0:
            raise CommandFailed(done.exit_status, done.error_tail)
        try:
            value = orjson.loads(done.last_line)
        except orjson.JSONDecodeError:
            return None
        return value if isinstance(value, dict | int | float) else None
