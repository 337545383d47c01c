"""One episode: opens a task's sessions, runs the agent, and closes them however it ended.

A task has one session, or one for each of its roles. `runner.py` calls it for every task;
`gateway_client/ending.py` decides what an ending means.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.names import PROVIDER
from seamlessflow.producers.agents.beginnings import Beginnings, NoBeginning
from seamlessflow.producers.agents.gateway_client.client import (
    GatewayClient,
    GatewayRefused,
    OpenedSession,
)
from seamlessflow.producers.agents.gateway_client.ending import (
    REASON_CHARACTERS,
    AgentCrashed,
    CloseCall,
    Ending,
    EndingRules,
    closing_calls,
)
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient
from seamlessflow.producers.agents.play import Play, UserCode, WatchedRun, description
from seamlessflow.producers.agents.roles import by_role, calls_by_role, policies_of
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.agents.stalls import Leftovers
from seamlessflow.schemas.forks import PLAYBACK, history, of_session
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import Task

_log = logging.getLogger(__name__)
_FORK_REFUSED = "fork_refused"
_CLOSE_MARGIN_S = 600.0
"""Kafka or a manager may be away for this long at a session's end."""
_ALL_OF_ITS_TIME = 0.9
"""An agent that had at least this share of its time caused its time-out itself."""
_LEFT_BEHIND = CloseCall("aborted", "the process that ran the agent is gone", "infrastructure")
_GIVEN_UP = CloseCall("aborted", "the session was not opened in time", "infrastructure")
_ENDED = "seamlessflow_agents_tasks_total"


class Episodes:
    """Runner of episodes; all of them share one agent, one gateway and one HTTP client."""

    def __init__(
        self,
        settings: AgentsSection,
        code: UserCode,
        gateway: GatewayClient,
        instruments: Instruments,
        leftovers: Leftovers,
        watched: WatchedRun | None = None,
        beginnings: Beginnings | None = None,
    ) -> None:
        """`beginnings`: copies for sessions that go on from ended ones; without it, none can."""
        watched = watched or WatchedRun()
        self._settings = settings
        self._rules = EndingRules(
            settings.on_timeout,
            settings.timeout_reward,
            settings.on_limit,
            settings.await_reward_s,
            settings.rewards,
        )
        self._gateway = gateway
        self._telemetry = instruments.traces
        self._metrics = instruments.metrics
        self._ended = watched.ended
        self._serving = watched.serving
        self._play = Play(settings, code, leftovers, watched)
        self._beginnings = beginnings
        self._http = SharedHttpClient(settings.concurrency)

    def stop_agents(self) -> None:
        """Stop all running agents and judges; their sessions are then closed as stopped."""
        self._play.stop()

    async def close(self) -> None:
        """Close the connections of the agents and the gateway client."""
        await self._http.close()
        self._gateway.disconnect()

    async def run(self, task: Task, left_behind: bool = False) -> None:
        """Run one episode; return once its sessions are closed, however long the gateway is away.

        A task that a predecessor left behind is not run again: its sessions are closed as spoilt by
        the infrastructure. Raises `GatewayRefused` if the gateway does not accept the admin key.
        """
        parts = by_role(task)
        names = [_name(part) for part in parts.values()]
        name = names[0]
        if left_behind and any([await self._close_left(left) for left in names]):
            return
        if task.group_id in self._ended:
            return
        if self._left_s(task) <= 0:
            _log.warning("%s: not started, the deadline of its task has passed", name)
            return
        try:
            work: dict[str, str] = {"operation": "invoke_agent", "provider": PROVIDER}
            with self._telemetry.root(
                "run task", session_id=name, task=task.task_id, **work
            ) as span:
                gateway = self._gateway.traced(span.headers)
                label = _label(await self._run(task, parts, gateway))
                span.set(ending=label)
            self._metrics.counter(_ENDED, ending=label).inc()
        except GatewayRefused as error:
            if error.lasting:
                raise
            _log.error("%s: %s", name, error)
        except Exception as error:  # must not end the other sessions of this process
            _log.exception("%s: the episode failed", name)
            failed = AgentCrashed(description(error), infrastructure=True)
            for of_role in names:
                await self._gateway.close(of_role, closing_calls(failed, self._rules).close)

    async def _close_left(self, name: str, close: CloseCall = _LEFT_BEHIND) -> bool:
        """Close a session that no agent runs in; return False if it was never opened."""
        try:
            if await self._gateway.close(name, close):
                _log.warning("%s: closed, %s", name, close.reason)
        except GatewayRefused as error:
            if error.code == "unknown_session":
                return False
            if error.lasting:
                raise
            _log.error("%s: %s", name, error)
        return True

    async def _run(
        self, task: Task, parts: Mapping[str, Task], gateway: GatewayClient
    ) -> Ending | None:
        openings = [self._opened(part, gateway) for part in parts.values()]
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
        by_part = zip(parts, outcomes, strict=True)
        sessions = {role: opened for role, opened in by_part if isinstance(opened, AgentSession)}
        if len(sessions) < len(parts):
            return await self._without_all(sessions, outcomes)
        # Opening may have taken long.
        limit_s = self._limit_s(task)
        allowed_s = (task.deadline_ms - task.issued_at_ms) / 1000
        late = limit_s < _ALL_OF_ITS_TIME * min(self._settings.time_limit_s, allowed_s)
        endings = await self._play.endings(task, sessions, limit_s, late)
        endings = await self._rewarded(sessions, endings, gateway)
        calls = calls_by_role(endings, self._rules)
        closes = [gateway.close(_name(parts[role]), calls[role].close) for role in parts]
        for outcome in await asyncio.gather(*closes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return next(iter(endings.values()))

    async def _without_all(
        self, sessions: Mapping[str, AgentSession], outcomes: Sequence[object]
    ) -> AgentCrashed | None:
        """Close the sessions that opened, since others did not; raise or return the reason."""
        refused = next((each for each in outcomes if isinstance(each, AgentCrashed)), None)
        # What is refused stays refused, so a further attempt could not begin either.
        cause = "infrastructure" if refused is None else "setting"
        close = CloseCall("aborted", "another session of its episode was not opened", cause)
        for session in sessions.values():
            await self._close_left(session.session_id, close)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return refused

    async def _rewarded(
        self,
        sessions: Mapping[str, AgentSession],
        endings: Mapping[str, Ending],
        gateway: GatewayClient,
    ) -> Mapping[str, Ending]:
        """Assign the rewards; return the endings. If a reward is refused, all become crashes."""
        name = ""
        try:
            for role, calls in calls_by_role(endings, self._rules).items():
                name = sessions[role].session_id
                for reward in calls.rewards:
                    await gateway.reward(name, reward)
        except GatewayRefused as error:  # for example, the session has no such turn to reward
            if error.lasting:
                raise
            _log.error("%s: %s", name, error)
            infrastructure = error.status >= 500
            crash = AgentCrashed(str(error), infrastructure, bad_result=not infrastructure)
            return dict.fromkeys(sessions, crash)
        return endings

    async def _opened(
        self, task: Task, gateway: GatewayClient
    ) -> AgentSession | AgentCrashed | None:
        """Return the opened session, or why it was closed at once; None if it is not ours."""
        name = _name(task)
        try:
            task = await self._begun(task)
            opened = await self._open(name, task, gateway)
        except NoBeginning as error:
            return await self._refused(name, replace(task, fork_at=None), gateway, str(error))
        except KafkaUnavailable as error:  # the process ends
            _log.warning("%s: not started, %s", name, error)
            return None
        except GatewayRefused as error:
            if not error.answered:
                # The manager may still open it when it is back, and no other caller closes it.
                await self._close_left(name, _GIVEN_UP)
            if not _stays_refused(error):
                raise
            place = _place(task) if error.code != _FORK_REFUSED else replace(task, fork=None)
            return await self._refused(name, place, gateway, f"{error.code}: {error.detail}")
        if opened is None:
            _log.warning("%s: skipped, the session exists already", name)
            return None
        return self._session(name, task, opened)

    async def _begun(self, task: Task) -> Task:
        """Return the task, with its session's beginning if that goes on from an ended one.

        Raises `NoBeginning`, and `KafkaUnavailable` once the process ends.
        """
        place = task.fork_at
        mode = self._settings.forks
        if place is None:
            return task
        if mode == "none":
            raise NoBeginning(place, "agents.forks is none")
        if self._beginnings is None:
            raise NoBeginning(place, "this agents process copies no beginnings")
        return replace(task, fork=await asyncio.to_thread(self._beginnings.prefix, place, mode))

    async def _refused(
        self, name: str, place: Task, gateway: GatewayClient, reason: str
    ) -> AgentCrashed:
        """Open and close a session whose opening was refused: without one, the sample never ends.

        `place`: the task with its place in its group, and without what may have been refused.
        """
        _log.error("%s: not opened, %s", name, reason)
        left_s = self._left_s(place)
        await gateway.open(name, place, self._settings.name, _CLOSE_MARGIN_S, left_s)
        # A further attempt could not begin either.
        await gateway.close(name, CloseCall("aborted", reason[:REASON_CHARACTERS], "setting"))
        return AgentCrashed(reason)

    async def _open(self, name: str, task: Task, gateway: GatewayClient) -> OpenedSession | None:
        settings = self._settings
        left_s = self._left_s(task)
        limit_s = self._limit_s(task)
        # The session must outlive agent, judge and a late reward, or it expires before its close.
        longest_s = limit_s + settings.reward_limit_s + settings.await_reward_s + _CLOSE_MARGIN_S
        modules = settings.modules
        return await gateway.open(name, task, settings.name, longest_s, left_s, modules)

    def _left_s(self, task: Task) -> float:
        """Return a task's remaining time, plus the time in which its engines were away."""
        policies = policies_of(task, self._settings.modules)
        stood_s = self._serving.stood_s(policies, task.issued_at_ms)
        return task.deadline_ms / 1000 - time.time() + stood_s

    def _limit_s(self, task: Task) -> float:
        """Return the time that an agent may take now."""
        return min(self._settings.time_limit_s, self._left_s(task))

    def _session(self, name: str, task: Task, opened: OpenedSession) -> AgentSession:
        return AgentSession(
            session_id=name,
            base_url=opened.base_url,
            api_key=opened.api_key,
            model=task.policy,
            deadline_ms=round((time.time() + self._limit_s(task)) * 1000),
            metadata=task.metadata,
            shared=self._http,
            turn_limit=task.turn_limit,
            messages=_beginning(name, task),
        )


def _name(task: Task) -> str:
    """Return the id of a task's session."""
    return session_id(task.group_id, task.sample, task.attempt)


def _beginning(name: str, task: Task) -> Sequence[Mapping[str, Any]]:
    """Return the messages with which the agent begins, as its own session names them."""
    if task.fork is None or task.fork.mode == PLAYBACK:
        return ()
    return [orjson.loads(message) for message in history(of_session(task.fork, name))]


def _stays_refused(error: GatewayRefused) -> bool:
    """Return True if the same opening is refused again however often it is repeated."""
    return error.answered and not error.lasting and 400 <= error.status < 500


def _place(task: Task) -> Task:
    """Return the task with only its place in its group."""
    return replace(
        task,
        task_id="",
        metadata={},
        turn_limit=0,
        pinned_version=None,
        fork=None,
        fork_at=None,
        overrides=None,
        seed_session=None,
    )


def _label(ending: Ending | None) -> str:
    """Return the ending as metrics and spans name it: without the prefix of its class."""
    return type(ending).__name__.removeprefix("Agent")
