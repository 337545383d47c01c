"""Judges behind one protocol, of three kinds: a Python callable, a command line, or a model.

`tries.py` calls them, limits their time and interprets their failures.
"""

import os
from dataclasses import asdict
from typing import Protocol

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.user_functions import load_function
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.harness.callables import Callback, CallThreads, invoke
from seamlessflow.producers.agents.harness.command import Command, CommandFailed
from seamlessflow.recorded.judging.judged_session import JudgedSession
from seamlessflow.recorded.judging.models import ModelJudge
from seamlessflow.recorded.judging.servers import ModelServer, OpenAIServer, PolicyServer
from seamlessflow.recorded.judging.settings import JudgeSection, ModelSection
from seamlessflow.schemas.json_text import write_json


class SessionJudge(Protocol):
    """Judge for sessions."""

    async def reward(self, session: JudgedSession) -> object:
        """Return what the judge returned. Raises what it raises.

        Cancelling stops it, unless it is a sync callable.
        """

    def goes_on(self, session: JudgedSession) -> bool:
        """Return whether a thread still judges the session."""

    def close(self) -> None:
        """Give up what it holds."""


class CallableJudge:
    """Judge that is a function, called as `function(session)`."""

    def __init__(self, function: Callback) -> None:
        self._function = function
        self._threads = CallThreads()

    async def reward(self, session: JudgedSession) -> object:
        return await invoke(self._function, self._threads, session)

    def goes_on(self, session: JudgedSession) -> bool:
        return self._threads.runs_with(session)

    def close(self) -> None:
        """Leave threads that still run to themselves."""


class CommandJudge:
    """Judge that is a program: it reads the session as JSON and prints its reward last.

    Exit status 75 (try again) is an outage, any other but 0 a failure.
    """

    def __init__(self, command: Command) -> None:
        self._command = command

    async def reward(self, session: JudgedSession) -> object:
        ended = await self._command.run_on(write_json(asdict(session)), {})
        if ended.exit_status != 0:
            raise CommandFailed(ended.exit_status, ended.error_tail)
        return ended.result

    def goes_on(self, session: JudgedSession) -> bool:
        return False

    def close(self) -> None:
        """Hold nothing."""


def judge_of(
    name: str, settings: JudgeSection, metrics: Metrics, gateway: GatewayClient | None = None
) -> SessionJudge:
    """Return the judge with these settings. Raises `FunctionUnusable`.

    `gateway`: the run's, for a judge that is one of its policies.
    """
    if settings.model is not None:
        server = _server_of(name, settings, settings.model, gateway)
        return ModelJudge(name, settings.model, server, metrics)
    if settings.command:
        return CommandJudge(Command(settings.command, os.environ))
    return CallableJudge(load_function(settings.callable))


def _server_of(
    name: str, settings: JudgeSection, model: ModelSection, gateway: GatewayClient | None
) -> ModelServer:
    if not model.policy:
        return OpenAIServer(model)
    if gateway is None:
        raise ValueError(f"judge {name} is a policy of a run, and there is no gateway")
    return PolicyServer(name, model, settings.timeout_s, gateway)
