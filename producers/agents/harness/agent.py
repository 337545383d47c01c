"""Agents of two kinds behind one protocol: a Python callable, or any command line.

`episode.py` starts, watches and stops them.
"""

import os
from typing import Protocol

from seamlessflow.producers.agents.harness.callables import Callback, CallThreads, invoke
from seamlessflow.producers.agents.harness.command import Command, CommandFailed, exempted
from seamlessflow.producers.agents.harness.session import (
    AgentSession,
    AgentSessions,
    each_session,
)
from seamlessflow.schemas.json_text import read_json


class Agent(Protocol):
    """Program that works on tasks through a session."""

    async def run(self, payload: bytes, session: AgentSessions) -> object:
        """Run the agent and return its result (see `session.py`). Raises what the agent raises.

        Cancelling stops the agent, unless it is a sync callable.
        """

    def goes_on(self, session: AgentSessions) -> bool:
        """Return whether a thread of the session's agent still runs."""


class CallableAgent:
    """Agent that is a function, called as `function(task, session)`.

    With roles, it gets a session for each role.
    """

    def __init__(self, function: Callback, threads: CallThreads) -> None:
        self._function = function
        self._threads = threads

    async def run(self, payload: bytes, session: AgentSessions) -> object:
        for each in each_session(session):  # clients read the variables when they are made
            os.environ.update(exempted(os.environ, each.base_url))
        return await invoke(self._function, self._threads, read_json(payload), session)

    def goes_on(self, session: AgentSessions) -> bool:
        return self._threads.runs_with(session)


class CommandAgent:
    """Agent that is a program: it reads the task from standard input and may print its result.

    The last line of its output is the result if it is a JSON object or a number (`command.py`). A
    judge gets any other line as `last_line`. Exit status 0 is success, 75 (try again) an
    infrastructure failure, any other a crash.
    """

    def __init__(self, command: Command) -> None:
        self._command = command

    async def run(self, payload: bytes, session: AgentSessions) -> object:
        if not isinstance(session, AgentSession):
            raise TypeError("a program has one session, and not one for each role")
        ended = await self._command.run(payload, session)
        if ended.exit_status != 0:
            raise CommandFailed(ended.exit_status, ended.error_tail)
        return ended.result

    def goes_on(self, session: AgentSessions) -> bool:
        return False
