"""One task from its session's opening to its close, whatever its agent does.

Called by `runner.py` for every task. What an ending means is decided in `outcome.py`.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Executor

import orjson

from infra.telemetry.metrics import Metrics
from infra.telemetry.tracing import Telemetry
from producers.agents.blame import is_infrastructure
from producers.agents.gateway_client import outcome
from producers.agents.gateway_client.client import GatewayClient, GatewayRefused, OpenedSession
from producers.agents.harness.agent import Agent
from producers.agents.harness.command import TRY_AGAIN, CommandFailed
from producers.agents.harness.loading import Callback, invoke
from producers.agents.harness.session import AgentSession, SharedHttpClient
from producers.agents.settings import AgentsSection
from schemas.identity import session_id
from schemas.records import Task

_log = logging.getLogger(__name__)
_STOP_GRACE_S = 5.0
_UNAUTHORIZED = (401, 403)
_CLOSE_MARGIN_S = 60.0
_ENDED = "seamlessflow_agents_tasks_total"


class Episodes:
    """Runs tasks; all of them share one agent, one gateway and one HTTP client."""

    def __init__(
        self,
        settings: AgentsSection,
        agent: Agent,
        judge: Callback | None,
        gateway: GatewayClient,
        threads: Executor,
        telemetry: Telemetry,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._judge = judge
        self._gateway = gateway
        self._threads = threads
        self._telemetry = telemetry
        self._metrics = metrics
        self._http = SharedHttpClient(settings.concurrency)
        self._running: set[asyncio.Task[object]] = set()

    def stop_agents(self) -> None:
        """Stops all running agents; their sessions are then closed as stopped."""
        for running in self._running:
            running.cancel()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.close()
        self._gateway.disconnect()

    async def run(self, task: Task) -> None:
        """Runs a task. A gateway that cannot be reached costs the task, never the process.

        Raises `GatewayRefused` where the admin key is not accepted.
        """
        name = session_id(task.group_id, task.sample, task.attempt)
        limit_s = min(self._settings.time_limit_s, task.deadline_ms / 1000 - time.time())
        if limit_s <= 0:
            _log.warning("%s: its deadline had passed before it was started", name)
            return
        try:
            with self._telemetry.span("run task", session_id=name, task=task.task_id) as span:
                ending = await self._run(name, task, limit_s)
                span.set(ending=type(ending).__name__)
            self._metrics.counter(_ENDED, ending=type(ending).__name__).inc()
        except GatewayRefused as error:
            if error.status in _UNAUTHORIZED:
                raise
            _log.error("%s: %s", name, error)

    async def _run(self, name: str, task: Task, limit_s: float) -> outcome.Ending | None:
        opened = await self._open(name, task, limit_s)
        if opened is None:
            _log.warning("%s: skipped, the session exists already", name)
            return None
        ending = await self._ending(task, self._session(name, task, opened, limit_s), limit_s)
        await self._tell(name, ending)
        return ending

    async def _open(self, name: str, task: Task, limit_s: float) -> OpenedSession | None:
        settings = self._settings
        longest_s = limit_s + settings.reward_limit_s + settings.await_reward_s + _CLOSE_MARGIN_S
        return await self._gateway.open(name, task, settings.name, longest_s)

    def _session(
        self, name: str, task: Task, opened: OpenedSession, limit_s: float
    ) -> AgentSession:
        return AgentSession(
            session_id=name,
            base_url=opened.base_url,
            api_key=opened.api_key,
            model=task.policy,
            deadline_ms=round((time.time() + limit_s) * 1000),
            metadata=task.metadata,
            shared=self._http,
        )

    async def _ending(self, task: Task, session: AgentSession, limit_s: float) -> outcome.Ending:
        running = asyncio.create_task(self._play(task.payload, session))
        self._running.add(running)
        try:
            await asyncio.wait({running}, timeout=limit_s)
            if not running.done():
                running.cancel()
                await asyncio.wait({running}, timeout=_STOP_GRACE_S)
                return outcome.TimedOut(limit_s)
        finally:
            self._running.discard(running)
        if running.cancelled():
            return outcome.Stopped()
        error = running.exception()
        if error is not None:
            _log.warning("%s: the agent failed", session.session_id, exc_info=error)
            return outcome.Crashed(f"{type(error).__name__}: {error}", _infrastructure(error))
        return await self._judged(task.payload, running.result())

    async def _play(self, payload: bytes, session: AgentSession) -> object:
        return await self._agent.run(payload, session)

    async def _judged(self, payload: bytes, value: object) -> outcome.Ending:
        """The ending of an agent that came to its end, with its judge's reward."""
        try:
            result = outcome.result_of(value)
            if self._judge is None:
                return outcome.Returned(result)
            async with asyncio.timeout(self._settings.reward_limit_s):
                task: Mapping[str, object] = orjson.loads(payload)
                reward = await invoke(self._judge, self._threads, task, result)
            return outcome.Returned({**result, "reward": outcome.number(reward)})
        except Exception as error:  # whatever the judge raises ends this session, nothing else
            _log.warning("the reward could not be had", exc_info=error)
            return outcome.Crashed(f"reward: {type(error).__name__}: {error}")

    async def _tell(self, name: str, ending: outcome.Ending) -> None:
        settings = self._settings
        told = outcome.outcome(ending, settings.timeout_reward, settings.await_reward_s)
        for reward in told.rewards:
            await self._gateway.reward(name, reward)
        await self._gateway.close(name, told.close)


def _infrastructure(error: BaseException) -> bool:
    if isinstance(error, CommandFailed):
        return error.exit_status == TRY_AGAIN
    return is_infrastructure(error)
