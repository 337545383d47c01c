"""The agents process: runs an episode for each task from Kafka, and ends in order.

When asked to stop, it starts no more tasks, gives running agents `drain_s` to finish, then
stops them and closes their sessions as stopped. Sessions that could not be closed are left to the
next owner of their tasks.
"""

import asyncio
import logging
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from infra.kafka.start.cluster import find_cluster
from infra.process import ready
from infra.telemetry.metrics import Metrics
from infra.telemetry.output import MetricsOutput
from infra.telemetry.tracing import Telemetry, telemetry
from producers.agents.backlog import Place
from producers.agents.episode import Episodes
from producers.agents.gateway_client.client import GatewayClient
from producers.agents.harness.agent import Agent, CallableAgent, CommandAgent
from producers.agents.harness.command import Command
from producers.agents.harness.loading import load_callable
from producers.agents.settings import AgentsSection, AgentsSettings
from producers.agents.task_feed import AgentCapacity, StartedTask, TaskFeed
from schemas.topics import TASKS

_log = logging.getLogger(__name__)
_CLOSING_S = 10.0
_LOG_EVERY_CALL = ("httpx", "httpx2")
"""Libraries of agents that log a line for each call."""


async def serve(settings: AgentsSettings, stop: asyncio.Event) -> None:
    """Run agents until `stop` is set.

    Raises `CallableNotFound` before it reads any task, `GatewayRefused` if the gateway does not
    accept the admin key, and what `find_cluster` raises.
    """
    for library in _LOG_EVERY_CALL:
        logging.getLogger(library).setLevel(logging.WARNING)
    threads = ThreadPoolExecutor(settings.agents.concurrency, "agent")
    name = f"agents-{os.getpid()}"
    prefix, metrics = settings.kafka.topic_prefix, Metrics()
    traces = telemetry(settings.telemetry, "agents", name, prefix)
    output = MetricsOutput(settings, metrics, "agents", name)
    episodes = _episodes(settings.agents, threads, traces, metrics)
    await asyncio.to_thread(find_cluster, settings.kafka, [TASKS], stop.is_set)
    capacity = AgentCapacity(settings.agents.concurrency)
    running = _RunningEpisodes(episodes, capacity, stop)
    loop = asyncio.get_running_loop()
    drain_s = settings.agents.drain_s
    # The feed calls these in its own thread; episodes belong to this loop.
    feed = TaskFeed(
        settings.kafka,
        settings.agents.group,
        capacity,
        metrics,
        start=lambda started: loop.call_soon_threadsafe(running.start, started),
        drain=lambda: asyncio.run_coroutine_threadsafe(running.drain(drain_s), loop).result(),
    )
    feed.begin()
    ready(_log, "running agents, at most %d at once", settings.agents.concurrency)
    await stop.wait()
    await asyncio.to_thread(feed.end)  # joins the feed's thread: not in the event loop
    await episodes.close()
    threads.shutdown(wait=False, cancel_futures=True)
    await asyncio.to_thread(traces.close)
    await asyncio.to_thread(output.close)
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
        """Exception of an episode, or None if there was none; it ends the process."""

    def start(self, started: StartedTask) -> None:
        episode = self._episodes.run(started.task, started.left_behind)
        running = asyncio.get_running_loop().create_task(episode)
        self._tasks.add(running)
        running.add_done_callback(partial(self._done, started.place))

    async def drain(self, drain_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        self._episodes.stop_agents()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSING_S)
        if self._tasks:
            _log.warning("%d tasks are left to their next owner", len(self._tasks))
        for task in self._tasks:
            task.cancel()

    def _done(self, place: Place, running: asyncio.Task[None]) -> None:
        self._tasks.discard(running)
        if running.cancelled():
            return
        error = running.exception()
        if error is None:
            self._capacity.release(place)
        else:
            self.failure = error
            self._stop.set()
