"""A tryout's episodes: each in its own session, by the code that plays them in a run."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
from pydantic import SecretStr

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.instruments import Instruments, instruments
from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentChild, EnvironmentSpec
from seamlessflow.producers.agents.environments.leftovers import LeftBehind
from seamlessflow.producers.agents.episode import Episodes
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.harness.callables import CallThreads
from seamlessflow.producers.agents.harness.session import AgentSession, AgentSessions
from seamlessflow.producers.agents.play import UserCode
from seamlessflow.producers.agents.roles import ALONE, by_role
from seamlessflow.producers.agents.settings import AgentsSection, AgentsSettings
from seamlessflow.producers.agents.stalls import Leftovers
from seamlessflow.producers.gateway.calls.chains import trained_chains
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import EpisodeRole, Task, Trajectory, TurnCompleted, TurnStarted
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from seamlessflow.tryout.calls import call_facts, history_breaks, request_of
from seamlessflow.tryout.facts import EpisodeFacts
from seamlessflow.tryout.policy import ScriptedPolicy, offered_tools
from seamlessflow.tryout.relay import Relay, SentCall, WantedAnswer, relay
from seamlessflow.tryout.system import TryoutSystem

_NAME = "tryout"
_LOOK_S = 0.3
_ENDING_S = 3.0
"""Time for the kernel to end what was killed."""
_MARGIN_S = 60.0
"""Time that an episode's task has beyond the episode."""


@dataclass
class PlayedEpisodes:
    """Episodes that have ended, and the environment's process behind them."""

    warm_up_s: float = 0.0
    tasks: dict[str, str] = field(default_factory=dict)
    """Task ids by session, with the session's role, in episode order."""
    seconds: dict[str, float] = field(default_factory=dict)
    returned: dict[str, object] = field(default_factory=dict)
    left: dict[str, LeftBehind] = field(default_factory=dict)
    left_at_end: tuple[str, ...] = ()
    calls: Sequence[SentCall] = ()


def play(
    system: TryoutSystem,
    agents: AgentsSection,
    spec: EnvironmentSpec,
    rows: Sequence[TaskRow],
    texts: Sequence[str],
) -> PlayedEpisodes:
    """Play an episode of each task, one after the other.

    Raises `EnvironmentUnusable`, and what `TryoutSystem.check` raises.
    """
    played = PlayedEpisodes()
    speaker = _Speaker(system, texts)
    section = agents.model_copy(
        update={"gateway_url": system.gateway_url, "admin_key": SecretStr(system.admin_key)}
    )
    settings = AgentsSettings(kafka=system.kafka, agents=section)
    with (
        relay(system.gateway_url, speaker.asked) as server,
        instruments(settings, "agents", _NAME) as made,
        asyncio.Runner() as runner,
    ):
        agent = EnvironmentAgent(spec, 1, 1, section.warm_up_limit_s)
        watched = _WatchedAgent(agent, server, played)
        episodes = _episodes(section, watched, made)
        runner.run(_watched(_play(system, section, agent, episodes, rows, played), system.check))
        played.calls = tuple(server.calls)
    return played


def episode_facts(system: TryoutSystem, played: PlayedEpisodes) -> list[EpisodeFacts]:
    """Return all episodes' facts, once their sessions are finalized.

    Raises `NotReady`, and what `TryoutSystem.check` raises.
    """
    finalized: dict[str, Trajectory] = {}

    def all_finalized() -> bool:
        finalized.update(_trajectories(system.kafka))
        return finalized.keys() >= played.tasks.keys()

    system.wait_for("the sessions of the episodes", all_finalized)
    started, read = _turns(system.kafka)
    return [
        _facts(finalized[name], played, started.get(name, []), read.get(name, 0))
        for name in played.tasks
    ]


class _Speaker:
    """The scripted policy, for all sessions. Called in the relay's threads."""

    def __init__(self, system: TryoutSystem, texts: Sequence[str]) -> None:
        self._answers = system.answers
        self._texts = texts
        self._policies: dict[str, ScriptedPolicy] = {}

    def asked(self, call: SentCall) -> WantedAnswer | None:
        """Set the answer to a session's next call; return it, or None if nothing is sampled."""
        if (request := request_of(call)) is None:
            return None
        policy = self._policies.setdefault(call.session_id, ScriptedPolicy(self._texts))
        message = policy.answer(request)
        unwritten = self._answers.say(call.session_id, message, list(offered_tools(request)))
        calls = message.get("tool_calls") or [{"function": {"name": ""}}]
        return WantedAnswer(calls[0]["function"]["name"], unwritten)


class _WatchedAgent:
    """The environment as an agent whose calls pass the relay; keeps what it returned."""

    def __init__(self, agent: EnvironmentAgent, server: Relay, played: PlayedEpisodes) -> None:
        self._agent = agent
        self._relay = server
        self._played = played

    async def run(self, payload: bytes, session: AgentSessions) -> object:
        """Run an episode. Raises what the environment raises."""
        begun_s = time.monotonic()
        try:
            result = await self._agent.run(payload, self._relayed(session))
            for role, name in _names(session).items():
                of_role = result.get(role) if role and isinstance(result, Mapping) else result
                self._played.returned[name] = of_role
            return result
        finally:
            seconds = time.monotonic() - begun_s
            self._played.seconds |= dict.fromkeys(_names(session).values(), seconds)

    def goes_on(self, _: AgentSessions) -> bool:
        """Return False, as the environment does."""
        return False

    def _relayed(self, session: AgentSessions) -> AgentSessions:
        """Return the session, or each role's session, with the relay's URL."""
        if not isinstance(session, AgentSession):
            return {role: self._of_relay(of_role) for role, of_role in session.items()}
        return self._of_relay(session)

    def _of_relay(self, session: AgentSession) -> AgentSession:
        self._relay.sessions[session.api_key] = session.session_id
        url = session.base_url.replace(self._relay.gateway, self._relay.url)
        return replace(session, base_url=url)


def _names(session: AgentSessions) -> Mapping[str, str]:
    """Return an episode's session ids by role."""
    if isinstance(session, AgentSession):
        return {ALONE: session.session_id}
    return {role: of_role.session_id for role, of_role in session.items()}


async def _play(
    system: TryoutSystem,
    section: AgentsSection,
    agent: EnvironmentAgent,
    episodes: Episodes,
    rows: Sequence[TaskRow],
    played: PlayedEpisodes,
) -> None:
    begun_s = time.monotonic()
    await agent.begin()
    played.warm_up_s = time.monotonic() - begun_s
    try:
        for number, row in enumerate(rows):
            roles = next((child.roles for child in agent.children), ())
            task = _task(system.config.run.policy, row, number, section.time_limit_s, roles)
            before = _left(agent)
            await episodes.run(task)
            left = _new(before, _left(agent))
            for role, part in by_role(task).items():
                name = session_id(part.group_id, part.sample, part.attempt)
                played.tasks[name] = f"{row.task_id} as {role}" if role else row.task_id
                played.left[name] = left
                left = LeftBehind((), ())  # counted once
    finally:
        children = agent.children
        await episodes.close()
        await agent.close()
        played.left_at_end = await _outliving(children)


async def _watched(playing: Coroutine[None, None, None], check: Callable[[], None]) -> None:
    """Wait for the episodes; end them with what `check` raises."""
    task = asyncio.ensure_future(playing)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            check()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    task.result()


def _episodes(section: AgentsSection, agent: _WatchedAgent, made: Instruments) -> Episodes:
    leftovers = Leftovers(_NAME, 1, _ignore, _ignore, made.metrics)
    key = section.admin_key.get_secret_value()
    gateway = GatewayClient(section.gateway_url, key, section.call_limit_s)
    return Episodes(section, UserCode(agent, None, CallThreads()), gateway, made, leftovers)


def _ignore(_: object) -> None:
    """An environment's process is ended at its limit: none goes on as an agent's thread may."""


def _task(policy: str, row: TaskRow, number: int, limit_s: float, roles: Sequence[str]) -> Task:
    now = now_ms()
    group = f"{_NAME}-{number}"
    return Task(
        policy=policy,
        task_id=row.task_id,
        group_id=group,
        roles=tuple(
            EpisodeRole(role=role, policy=policy, group_id=f"{group}-{role}") for role in roles
        ),
        turn_limit=row.turn_limit or 0,
        metadata=row.metadata,
        payload=row.payload,
        issued_at_ms=now,
        deadline_ms=now + round(1000 * (limit_s + _MARGIN_S)),
    )


async def _outliving(children: Sequence[EnvironmentChild]) -> tuple[str, ...]:
    """Return the programs that go on although they were ended with their process."""
    ends_s = time.monotonic() + _ENDING_S
    while True:
        left = tuple(program for child in children for program in child.left_behind().programs)
        if not left or time.monotonic() > ends_s:
            return left
        await asyncio.sleep(_LOOK_S)


def _left(agent: EnvironmentAgent) -> LeftBehind:
    behind = [child.left_behind() for child in agent.children]
    return LeftBehind(
        tuple(program for each in behind for program in each.programs),
        tuple(file for each in behind for file in each.files),
    )


def _new(before: LeftBehind, after: LeftBehind) -> LeftBehind:
    return LeftBehind(
        tuple(program for program in after.programs if program not in before.programs),
        tuple(file for file in after.files if file not in before.files),
    )


def _trajectories(kafka: KafkaSettings) -> Mapping[str, Trajectory]:
    items = read_topic(kafka, TRAJECTORIES, Skipped())
    records = (item.record for item in items)
    return {record.session_id: record for record in records if isinstance(record, Trajectory)}


def _turns(kafka: KafkaSettings) -> tuple[dict[str, list[TurnStarted]], dict[str, int]]:
    """Return each session's turns as they started, and the count of tool calls in its answers."""
    started: dict[str, list[TurnStarted]] = {}
    read: dict[str, int] = {}
    for item in read_topic(kafka, SESSIONS, Skipped()):
        match item.record:
            case TurnStarted() as turn:
                started.setdefault(turn.session_id, []).append(turn)
            case TurnCompleted(session_id=name, message=message):
                calls = orjson.loads(message).get("tool_calls") or ()
                read[name] = read.get(name, 0) + len(calls)
    return started, read


def _facts(
    session: Trajectory, played: PlayedEpisodes, started: Sequence[TurnStarted], read: int
) -> EpisodeFacts:
    name = session.session_id
    sent = [call for call in played.calls if call.session_id == name]
    answered = [request_of(call) for call in sent if call.status < 400]
    requests = [request for request in answered if request is not None]
    returned = played.returned.get(name)
    members = returned if isinstance(returned, Mapping) else {}
    return EpisodeFacts(
        task_id=played.tasks[name],
        seconds=played.seconds.get(name, 0.0),
        status=session.status,
        cause=session.cause,
        reason=session.reason,
        rewards={reward.name: reward.value for reward in session.rewards},
        returned=tuple(key for key in members if key not in ("reward", "rewards")),
        turns=session.turns,
        chains=len(trained_chains(session)),
        calls=[call_facts(call) for call in sent],
        breaks=history_breaks(started, requests),
        read_calls=read,
        left=played.left[name],
    )
