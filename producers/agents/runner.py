"""The agents process: runs an episode for each task from Kafka, and ends in order.

When asked to stop, it starts no more tasks, gives running agents `drain_s` to finish, then
stops them and closes their sessions as stopped.
"""

import asyncio
import logging
import os
from concurrent.futures import Executor, ThreadPoolExecutor

from infra.process import ready
from infra.telemetry.metrics import Metrics
from infra.telemetry.metrics_export import metrics_export
from infra.telemetry.tracing import Telemetry, telemetry
from producers.agents.episode import Episodes
from producers.agents.gateway_client.client import GatewayClient
from producers.agents.harness.agent import Agent, CallableAgent, CommandAgent
from producers.agents.harness.command import Command
from producers.agents.harness.loading import load_callable
from producers.agents.settings import AgentsSection, AgentsSettings
from producers.agents.task_feed import AgentCapacity, TaskFeed
from schemas.records import Task

_log = logging.getLogger(__name__)
_CLOSING_S = 10.0
_LOG_EVERY_CALL = ("httpx", "httpx2")
"""Libraries of agents that log a line for each call."""


async def serve(settings: AgentsSettings, stop: asyncio.Event) -> None:
    """Run agents until `stop` is set.

    Raises `CallableNotFound` before it reads any task, and `GatewayRefused` if the gateway does not
    accept the admin key.
    """
    for library in _LOG_EVERY_CALL:
        logging.getLogger(library).setLevel(logging.WARNING)
    threads = ThreadPoolExecutor(settings.agents.concurrency, "agent")
    name = f"agents-{os.getpid()}"
    traces, metrics = telemetry(settings.telemetry, "agents", name), Metrics()
    export = metrics_export(settings.telemetry, metrics, "agents", name)
    episodes = _episodes(settings.agents, threads, traces, metrics)
    capacity = AgentCapacity(settings.agents.concurrency)
    running = _RunningEpisodes(episodes, capacity, stop)
    loop = asyncio.get_running_loop()
    # The feed calls `start` in its own thread; episodes belong to this loop.
    feed = TaskFeed(
        settings.kafka,
        settings.agents.group,
        capacity,
        lambda task: loop.call_soon_threadsafe(running.start, task),
    )
    feed.begin()
    ready(_log, "running agents, at most %d at once", settings.agents.concurrency)
    await stop.wait()
    await asyncio.to_thread(feed.end)  # joins the feed's thread: not in the event loop
    await running.drain(settings.agents.drain_s)
    await episodes.close()
    threads.shutdown(wait=False, cancel_futures=True)
    await asyncio.to_thread(traces.close)
    if export is not None:
        await asyncio.to_thread(export.close)
    if running.failure is not None:
        raise running.failure


def _episodes(
    settings: AgentsSection, threads: Executor, traces: Telemetry, metrics: Metrics
) -> Episodes:
    judge = load_callable(settings.reward) if settings.reward else None
    key = settings.admin_key.get_secret_value()
    gateway = GatewayClient(settings.gateway_url, key, settings.call_limit_s)
    return Episodes(settings, _agent(settings, threads), judge, gateway, threads, traces, metrics)


def _agent(settings: AgentsSection, threads: Executor) -> Agent:
    if settings.command:
        return CommandAgent(Command(settings.command, os.environ))
    return CallableAgent(load_callable(settings.callable), threads)


class _RunningEpisodes:
    """Episodes under way."""

    def __init__(self, episodes: Episodes, capacity: AgentCapacity, stop: asyncio.Event) -> None:
        self._episodes = episodes
        self._capacity = capacity
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = stop
        self.failure: BaseException | None = None
        """Exception of an episode, None if there was none; it ends the process."""

    def start(self, task: Task) -> None:
        running = asyncio.get_running_loop().create_task(self._episodes.run(task))
        self._tasks.add(running)
        running.add_done_callback(self._done)

    async def drain(self, drain_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        self._episodes.stop_agents()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_S)

    def _done(self, running: asyncio.Task[None]) -> None:
        self._tasks.discard(running)
        self._capacity.release()
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self.failure = error
            self._stop.set()
