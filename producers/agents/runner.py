"""The agents process: runs an episode for each task from Kafka, and ends in order.

When asked to stop, it starts no more tasks and gives running agents `drain_s` to finish. Then it
stops them and closes their sessions as stopped. Sessions that could not be closed are left to the
next owner of their tasks.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial

from seamlessflow.infra.clock import Stopping, now_ms
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.process import ready
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.instruments import Instruments, instruments
from seamlessflow.infra.user_functions import load_function
from seamlessflow.producers.agents.backlog import Place
from seamlessflow.producers.agents.beginnings import Beginnings
from seamlessflow.producers.agents.ended_groups import watch_groups
from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.venvs import environment_spec
from seamlessflow.producers.agents.episode import Episodes
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.harness.agent import Agent, CallableAgent, CommandAgent
from seamlessflow.producers.agents.harness.callables import CallThreads
from seamlessflow.producers.agents.harness.command import Command
from seamlessflow.producers.agents.harness.containment import contain_exits
from seamlessflow.producers.agents.play import UserCode, WatchedRun
from seamlessflow.producers.agents.serving import watch_engines
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.agents.stalls import Leftovers, LoopWatch, Report
from seamlessflow.producers.agents.task_feed import AgentCapacity, StartedTask, TaskFeed
from seamlessflow.schemas.records import ProgressStalled, Record
from seamlessflow.schemas.topics import CONTROL, FLEET, TASKS

_log = logging.getLogger(__name__)
_CLOSING_S = 10.0
_LOG_EVERY_CALL = ("httpx", "httpx2")
"""Libraries in agents that log a line for each call."""


MakeBeginnings = Callable[[KafkaSettings, Stopping], Beginnings]
"""Makes the source of beginnings, which gives up once the second argument returns True."""


async def serve(
    settings: AgentsSettings, stop: asyncio.Event, beginnings: MakeBeginnings | None = None
) -> None:
    """Run agents until `stop` is set. Without `beginnings` no session goes on from an ended one.

    Raises `FunctionUnusable` before it reads any task, and what `find_cluster` raises. Raises
    `GatewayRefused` if the gateway does not accept the admin key.
    """
    _quiet_libraries()
    name = f"agents-{os.getpid()}"
    with instruments(settings, "agents", name) as made:
        copies = None if beginnings is None else beginnings(settings.kafka, stop.is_set)
        await _serve(settings, name, made, stop, copies)


async def _serve(
    settings: AgentsSettings,
    name: str,
    instruments: Instruments,
    stop: asyncio.Event,
    beginnings: Beginnings | None,
) -> None:
    capacity = AgentCapacity(settings.agents.concurrency)
    running = _RunningEpisodes(capacity, stop)
    leftovers = Leftovers(
        name,
        settings.agents.concurrency,
        report=lambda report: feed.report(report),
        give_up=running.give_up,
        metrics=instruments.metrics,
    )
    watched = WatchedRun()
    code, gateway = _code_and_gateway(settings)
    episodes = Episodes(settings.agents, code, gateway, instruments, leftovers, watched, beginnings)
    topics = [TASKS, FLEET, CONTROL] if settings.pacing.redundancy else [TASKS, FLEET]
    await asyncio.to_thread(find_cluster, settings.kafka, topics, stop.is_set)
    if isinstance(code.agent, EnvironmentAgent):
        await code.agent.begin()
    loop = asyncio.get_running_loop()
    watches = _watches(settings, name, watched, running, lambda report: feed.report(report))
    # The feed calls these in its own thread; episodes belong to this loop.
    feed = TaskFeed(
        settings.kafka,
        settings.agents.group,
        capacity,
        instruments.metrics,
        start=lambda started: loop.call_soon_threadsafe(running.start, episodes, started),
        drain=lambda: asyncio.run_coroutine_threadsafe(
            running.drain(episodes, settings.agents.drain_s), loop
        ).result(),
    )
    feed.begin()
    ready(_log, "running agents, at most %d at once", settings.agents.concurrency)
    await stop.wait()
    await asyncio.to_thread(feed.end)  # joins the feed's thread: not in the event loop
    for watch in watches:
        await asyncio.to_thread(watch.close)
    await episodes.close()
    if isinstance(code.agent, EnvironmentAgent):
        await code.agent.close()
    if running.failure is not None:
        raise running.failure


def _quiet_libraries() -> None:
    for library in _LOG_EVERY_CALL:
        logging.getLogger(library).setLevel(logging.WARNING)


def _code_and_gateway(settings: AgentsSettings) -> tuple[UserCode, GatewayClient]:
    agents = settings.agents
    judge = load_function(agents.reward) if agents.reward else None
    key = agents.admin_key.get_secret_value()
    gateway = GatewayClient(agents.gateway_url, key, agents.call_limit_s)
    threads = CallThreads()
    code = UserCode(_agent(settings, threads), judge, threads)
    contain_exits(asyncio.get_running_loop())
    return code, gateway


def _watches(
    settings: AgentsSettings,
    name: str,
    watched: WatchedRun,
    running: "_RunningEpisodes",
    report: Report,
) -> list[ReaderThread | LoopWatch]:
    """Begin to watch when engines serve, what blocks the event loop and, with redundancy, which
    groups have ended. The readers call back in the event loop.
    """
    call = asyncio.get_running_loop().call_soon_threadsafe

    def failed(error: BaseException) -> None:
        call(running.give_up, error)

    def note(records: list[Record]) -> None:
        call(watched.serving.note, records)

    def end(groups: list[str]) -> None:
        call(watched.ended.end, groups)

    watches: list[ReaderThread | LoopWatch] = [LoopWatch(lambda notice: _tell(notice, report))]
    watches.append(watch_engines(settings.kafka, f"{name}-fleet", note, failed))
    if settings.pacing.redundancy:
        watches.append(watch_groups(settings.kafka, f"{name}-control", end, failed))
    return watches


def _tell(notice: str, report: Report) -> None:
    """Log what blocks the event loop, and report it for the display."""
    _log.warning("%s", notice)
    at_ms = now_ms()
    report(ProgressStalled(at_ms=at_ms, what="agent", detail=notice, since_ms=at_ms))


def _agent(settings: AgentsSettings, threads: CallThreads) -> Agent:
    agents = settings.agents
    if agents.command:
        return CommandAgent(Command(agents.command, os.environ))
    if agents.environment:
        log_file = settings.data_dir / "logs" / "environment.log"
        spec = environment_spec(agents, os.environ, log_file)
        live = agents.environment_limit or agents.concurrency
        return EnvironmentAgent(
            spec,
            agents.environment_processes,
            live,
            agents.warm_up_limit_s,
            agents.environment_episodes,
        )
    return CallableAgent(load_function(agents.callable), threads)


class _RunningEpisodes:
    """Episodes under way."""

    def __init__(self, capacity: AgentCapacity, stop: asyncio.Event) -> None:
        self._capacity = capacity
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = stop
        self.failure: BaseException | None = None
        """Exception of an episode, or None if there was none; it ends the process."""

    def give_up(self, error: BaseException) -> None:
        self.failure = error
        self._stop.set()

    def start(self, episodes: Episodes, started: StartedTask) -> None:
        episode = episodes.run(started.task, started.left_behind)
        running = asyncio.get_running_loop().create_task(episode)
        self._tasks.add(running)
        running.add_done_callback(partial(self._done, started.place))

    async def drain(self, episodes: Episodes, drain_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        episodes.stop_agents()
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
            self.give_up(error)
