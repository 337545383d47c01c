"""One episode: opens a session for a task, runs the agent in it, and closes it however it ended.

`runner.py` calls it for every task; `gateway_client/ending.py` decides what an ending means.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import orjson

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.names import PROVIDER
from seamlessflow.producers.agents.beginnings import Beginnings, NoBeginning
from seamlessflow.producers.agents.ended_groups import EndedGroups
from seamlessflow.producers.agents.environments.child import EnvironmentGone, EpisodeFailed
from seamlessflow.producers.agents.failures import is_infrastructure_failure
from seamlessflow.producers.agents.gateway_client.client import (
    GatewayClient,
    GatewayRefused,
    OpenedSession,
)
from seamlessflow.producers.agents.gateway_client.ending import (
    REASON_CHARACTERS,
    AgentCrashed,
    AgentPruned,
    AgentReturned,
    AgentStopped,
    AgentTimedOut,
    CloseCall,
    Ending,
    EndingRules,
    closing_calls,
)
from seamlessflow.producers.agents.harness.agent import Agent
from seamlessflow.producers.agents.harness.callables import Callback, CallThreads, invoke
from seamlessflow.producers.agents.harness.command import TRY_AGAIN, CommandFailed
from seamlessflow.producers.agents.harness.containment import ContainedCall
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient
from seamlessflow.producers.agents.result import BadResult, Result, judged, result_of
from seamlessflow.producers.agents.serving import ServingTime
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.agents.stalls import END_GRACE_S, Leftovers
from seamlessflow.schemas.forks import PLAYBACK, history, of_session
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import Task

_log = logging.getLogger(__name__)
_FORK_REFUSED = "fork_refused"
_CLOSE_MARGIN_S = 600.0
"""Time in which Kafka or a manager may be away at the end of a session."""
_LEAST_WAIT_S = 0.05
"""Time between two looks at a clock that stands."""
_ALL_OF_ITS_TIME = 0.9
"""Share of its time that an agent must have had for its time-out to be its own doing."""
_LEFT_BEHIND = CloseCall("aborted", "the process that ran the agent is gone", "infrastructure")
_GIVEN_UP = CloseCall("aborted", "the session was not opened in time", "infrastructure")
_ENDED = "seamlessflow_agents_tasks_total"


@dataclass(frozen=True, slots=True)
class UserCode:
    """Code of the user, and the threads in which it runs."""

    agent: Agent
    judge: Callback | None
    """It rewards what the agent returned; None if the agent gives its own rewards."""
    threads: CallThreads


class Episodes:
    """Runner of episodes; all of them share one agent, one gateway and one HTTP client."""

    def __init__(
        self,
        settings: AgentsSection,
        code: UserCode,
        gateway: GatewayClient,
        instruments: Instruments,
        leftovers: Leftovers,
        ended: EndedGroups | None = None,
        serving: ServingTime | None = None,
        beginnings: Beginnings | None = None,
    ) -> None:
        """`ended`: reports groups that need no further session; without it no group is reported.
        `serving`: the clock of agents; without it, all time counts. `beginnings`: copies for
        sessions that go on from ended ones; without it none does.
        """
        self._settings = settings
        self._rules = EndingRules(
            settings.on_timeout,
            settings.timeout_reward,
            settings.on_limit,
            settings.await_reward_s,
            settings.rewards,
        )
        self._agent = code.agent
        self._judge = code.judge
        self._gateway = gateway
        self._threads = code.threads
        self._telemetry = instruments.traces
        self._metrics = instruments.metrics
        self._leftovers = leftovers
        self._ended = ended or EndedGroups()
        self._serving = serving or ServingTime()
        self._beginnings = beginnings
        self._http = SharedHttpClient(settings.concurrency)
        self._running: set[ContainedCall] = set()

    def stop_agents(self) -> None:
        """Stop all running agents and judges; their sessions are then closed as stopped."""
        for call in self._running:
            call.stop()

    async def close(self) -> None:
        """Close the connections of agents and gateway client."""
        await self._http.close()
        self._gateway.disconnect()

    async def run(self, task: Task, left_behind: bool = False) -> None:
        """Run one episode; return once its session is closed, however long the gateway is away.

        A task that a predecessor left behind is not run again: its session is closed as spoilt by
        the infrastructure. Raises `GatewayRefused` if the gateway does not accept the admin key.
        """
        name = session_id(task.group_id, task.sample, task.attempt)
        if left_behind and await self._close_left(name):
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
                label = _label(await self._run(name, task, gateway))
                span.set(ending=label)
            self._metrics.counter(_ENDED, ending=label).inc()
        except GatewayRefused as error:
            if error.lasting:
                raise
            _log.error("%s: %s", name, error)
        except Exception as error:  # must not end the other sessions of this process
            _log.exception("%s: the episode failed", name)
            failed = AgentCrashed(_description(error), infrastructure=True)
            await self._gateway.close(name, closing_calls(failed, self._rules).close)

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

    async def _run(self, name: str, task: Task, gateway: GatewayClient) -> Ending | None:
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
                # The manager may carry the call out when it is back: no one else would close that.
                await self._close_left(name, _GIVEN_UP)
            if not _stays_refused(error):
                raise
            place = _place(task) if error.code != _FORK_REFUSED else replace(task, fork=None)
            return await self._refused(name, place, gateway, f"{error.code}: {error.detail}")
        if opened is None:
            _log.warning("%s: skipped, the session exists already", name)
            return None
        # Opening may have taken long.
        limit_s = min(self._settings.time_limit_s, self._left_s(task))
        session = self._session(name, task, opened, limit_s)
        allowed_s = (task.deadline_ms - task.issued_at_ms) / 1000
        late = limit_s < _ALL_OF_ITS_TIME * min(self._settings.time_limit_s, allowed_s)
        ending = await self._play(task, session, limit_s, late)
        try:
            for reward in closing_calls(ending, self._rules).rewards:
                await gateway.reward(name, reward)
        except GatewayRefused as error:  # such as a reward of a turn that the session has not
            if error.lasting:
                raise
            _log.error("%s: %s", name, error)
            infrastructure = error.status >= 500
            ending = AgentCrashed(str(error), infrastructure, bad_result=not infrastructure)
        await gateway.close(name, closing_calls(ending, self._rules).close)
        return ending

    async def _begun(self, task: Task) -> Task:
        """Return a task with the beginning of its session, if that goes on from an ended one.

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

    async def _refused(self, name: str, place: Task, gateway: GatewayClient, reason: str) -> Ending:
        """Open and close a session whose opening was refused: without one, the sample never ends.

        `place`: the sample's place in its group, and nothing else that may have been refused.
        """
        _log.error("%s: not opened, %s", name, reason)
        left_s = self._left_s(place)
        await gateway.open(name, place, self._settings.name, _CLOSE_MARGIN_S, left_s)
        # No further attempt could begin otherwise.
        await gateway.close(name, CloseCall("aborted", reason[:REASON_CHARACTERS], "setting"))
        return AgentCrashed(reason)

    async def _open(self, name: str, task: Task, gateway: GatewayClient) -> OpenedSession | None:
        settings = self._settings
        left_s = self._left_s(task)
        limit_s = min(settings.time_limit_s, left_s)
        # The session must outlive agent, judge and a late reward, or it expires before its close.
        longest_s = limit_s + settings.reward_limit_s + settings.await_reward_s + _CLOSE_MARGIN_S
        modules = settings.modules
        return await gateway.open(name, task, settings.name, longest_s, left_s, modules)

    def _policies(self, task: Task) -> frozenset[str]:
        """Return the policies that the agent of a task may call."""
        return frozenset({task.policy, *self._settings.modules.values()})

    def _left_s(self, task: Task) -> float:
        """Return the time that a task has left; that in which its engines were away is added."""
        stood_s = self._serving.stood_s(self._policies(task), task.issued_at_ms)
        return task.deadline_ms / 1000 - time.time() + stood_s

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
            turn_limit=task.turn_limit,
            messages=_beginning(name, task),
        )

    async def _play(self, task: Task, session: AgentSession, limit_s: float, late: bool) -> Ending:
        """Run the agent for at most `limit_s`, or until its group is complete without it; return
        its ending.
        """
        call = ContainedCall(self._agent.run(task.payload, session))
        ended = asyncio.create_task(self._ended.until_end(task.group_id))
        goes_on = partial(self._agent.goes_on, session)
        clock = partial(self._serving.elapsed_s, self._policies(task))
        try:
            over = await self._ends(call, session.session_id, limit_s, goes_on, clock, ended)
            pruned = ended.done()
        finally:
            ended.cancel()
        if not over:
            return AgentPruned() if pruned else AgentTimedOut(limit_s, late)
        if call.stopped:
            return AgentStopped()
        if (raised := call.error()) is not None:
            _log.warning("%s: the agent failed", session.session_id, exc_info=raised)
            return AgentCrashed(_description(raised), _infrastructure_failed(raised))
        return await self._judged(session.session_id, task.payload, call.result())

    async def _ends(
        self,
        call: ContainedCall,
        session: str,
        limit_s: float,
        goes_on: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        *others: asyncio.Future[None],
    ) -> bool:
        """Return True once the call is over.

        At the limit, by the clock, or if another future is done before, stop the call and return
        False.
        """
        self._running.add(call)
        begun_s = clock()
        try:
            while (left_s := limit_s - (clock() - begun_s)) > 0:
                await call.wait(max(left_s, _LEAST_WAIT_S), *others)
                if call.over or any(other.done() for other in others):
                    break
        finally:
            self._running.discard(call)
        if call.over:
            return True
        call.stop()
        self._leftovers.watch(session, lambda: not call.over or goes_on())
        await call.wait(END_GRACE_S)
        return False

    async def _judged(self, session: str, payload: bytes, value: object) -> Ending:
        """Return the ending of an agent that returned `value`, with the judge's rewards."""
        try:
            result = result_of(value)
        except Exception as error:  # a mapping of the agent's may raise anything
            return AgentCrashed(_description(error), bad_result=True)
        if self._judge is None:
            return AgentReturned(result)
        call = ContainedCall(self._judge_call(self._judge, payload, result))
        limit_s = self._settings.reward_limit_s
        if not await self._ends(call, session, limit_s, lambda: self._threads.runs_with(result)):
            late = f"it took longer than agents.reward_limit_s, {limit_s:g} s"
            _log.warning("%s: the judge gave no reward: %s", session, late)
            return _unjudged(late)
        if call.stopped:
            return AgentStopped()
        raised = call.error()
        if raised is None:
            return AgentReturned(cast(Result, call.result()))
        _log.warning("%s: the judge gave no reward", session, exc_info=raised)
        return _unjudged(_description(raised))

    async def _judge_call(self, judge: Callback, payload: bytes, result: Result) -> Result:
        task: Mapping[str, object] = read_json(payload)
        return judged(result, await invoke(judge, self._threads, task, result))


def _beginning(name: str, task: Task) -> Sequence[Mapping[str, Any]]:
    """Return the messages with which the agent begins, as its own session names them."""
    if task.fork is None or task.fork.mode == PLAYBACK:
        return ()
    return [orjson.loads(message) for message in history(of_session(task.fork, name))]


def _stays_refused(error: GatewayRefused) -> bool:
    """Return True if the same opening is refused again however often it is repeated."""
    return error.answered and not error.lasting and 400 <= error.status < 500


def _place(task: Task) -> Task:
    """Return the task with its place in its group alone."""
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


def _unjudged(detail: str) -> Ending:
    return AgentCrashed(f"the judge gave no reward\n{detail}", unjudged=True)


def _description(error: BaseException) -> str:
    """Return the error with its traceback, as Python prints it. For a failed program or an
    unreadable result, return the error's own words.
    """
    if isinstance(error, CommandFailed | BadResult | EpisodeFailed | EnvironmentGone):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


def _infrastructure_failed(error: BaseException) -> bool:
    if isinstance(error, CommandFailed):
        return error.exit_status == TRY_AGAIN
    if isinstance(error, EpisodeFailed):
        return error.infrastructure
    return isinstance(error, EnvironmentGone) or is_infrastructure_failure(error)
