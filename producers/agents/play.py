"""An episode's agent and judge at work: each runs until its end, its limit or its group's end.

`episode.py` opens the sessions before and closes them afterwards.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from seamlessflow.producers.agents.ended_groups import EndedGroups
from seamlessflow.producers.agents.environments.child import EnvironmentGone, EpisodeFailed
from seamlessflow.producers.agents.failures import is_infrastructure_failure
from seamlessflow.producers.agents.gateway_client.ending import (
    AgentCrashed,
    AgentPruned,
    AgentReturned,
    AgentStopped,
    AgentTimedOut,
    Ending,
)
from seamlessflow.producers.agents.harness.agent import Agent
from seamlessflow.producers.agents.harness.callables import Callback, CallThreads, invoke
from seamlessflow.producers.agents.harness.command import TRY_AGAIN, CommandFailed
from seamlessflow.producers.agents.harness.containment import ContainedCall
from seamlessflow.producers.agents.harness.session import AgentSession
from seamlessflow.producers.agents.result import BadResult, Result, judged
from seamlessflow.producers.agents.roles import ALONE, policies_of, results_of
from seamlessflow.producers.agents.serving import ServingTime
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.agents.stalls import END_GRACE_S, Leftovers
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import Task

_log = logging.getLogger(__name__)
_LEAST_WAIT_S = 0.05
"""Time between two looks at a clock that stands still."""


@dataclass(frozen=True, slots=True)
class UserCode:
    """The user's code, and the threads in which it runs."""

    agent: Agent
    judge: Callback | None
    """It rewards what the agent returned; None if the agent gives its own rewards."""
    threads: CallThreads


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """Facts about the run that a process reads beside its tasks.

    Unless a watch fills them, no group ends and all time counts.
    """

    ended: EndedGroups = field(default_factory=EndedGroups)
    serving: ServingTime = field(default_factory=ServingTime)


class Play:
    """Calls to the user's code, for all episodes of a process."""

    def __init__(
        self,
        settings: AgentsSection,
        code: UserCode,
        leftovers: Leftovers,
        watched: WatchedRun,
    ) -> None:
        self._settings = settings
        self._agent = code.agent
        self._judge = code.judge
        self._threads = code.threads
        self._leftovers = leftovers
        self._ended = watched.ended
        self._serving = watched.serving
        self._running: set[ContainedCall] = set()

    def stop(self) -> None:
        """Stop all running agents and judges; their sessions are then closed as stopped."""
        for call in self._running:
            call.stop()

    async def endings(
        self, task: Task, sessions: Mapping[str, AgentSession], limit_s: float, late: bool
    ) -> Mapping[str, Ending]:
        """Run the agent for at most `limit_s`, or until its group is complete without it; return
        each session's ending.
        """
        of_agent = sessions.get(ALONE, sessions)
        name = next(iter(sessions.values())).session_id
        call = ContainedCall(self._agent.run(task.payload, of_agent))
        ended = asyncio.create_task(self._ended.until_end(task.group_id))
        goes_on = partial(self._agent.goes_on, of_agent)
        policies = policies_of(task, self._settings.modules)
        clock = partial(self._serving.elapsed_s, policies)
        try:
            over = await self._ends(call, name, limit_s, goes_on, clock, ended)
            pruned = ended.done()
        finally:
            ended.cancel()
        if not over:
            return _all(sessions, AgentPruned() if pruned else AgentTimedOut(limit_s, late))
        if call.stopped:
            return _all(sessions, AgentStopped())
        if (raised := call.error()) is not None:
            _log.warning("%s: the agent failed", name, exc_info=raised)
            return _all(sessions, _crashed(raised))
        try:
            results = results_of(call.result(), sessions)
        except Exception as error:  # the agent's own mapping may raise anything
            return _all(sessions, AgentCrashed(description(error), bad_result=True))
        return {
            role: await self._judged(sessions[role].session_id, task.payload, result)
            for role, result in results.items()
        }

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

        If the clock reaches the limit, or another future is done first, stop the call and return
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

    async def _judged(self, session: str, payload: bytes, result: Result) -> Ending:
        """Return the ending after an agent's result, with the judge's rewards."""
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
        return _unjudged(description(raised))

    async def _judge_call(self, judge: Callback, payload: bytes, result: Result) -> Result:
        task: Mapping[str, object] = read_json(payload)
        return judged(result, await invoke(judge, self._threads, task, result))


def _all(sessions: Iterable[str], ending: Ending) -> Mapping[str, Ending]:
    return dict.fromkeys(sessions, ending)


def _unjudged(detail: str) -> Ending:
    return AgentCrashed(f"the judge gave no reward\n{detail}", unjudged=True)


def description(error: BaseException) -> str:
    """Return the error with its traceback, as Python prints it. For a failed program or episode,
    or a bad result, return only the error's own text.
    """
    if isinstance(error, CommandFailed | BadResult | EpisodeFailed | EnvironmentGone):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


def _crashed(error: BaseException) -> Ending:
    # Else a rubric that raises after a cut answer would be trained as reward 0.
    never_policys = isinstance(error, EpisodeFailed) and not error.refused
    return AgentCrashed(description(error), _infrastructure_failed(error), bad_result=never_policys)


def _infrastructure_failed(error: BaseException) -> bool:
    if isinstance(error, CommandFailed):
        return error.exit_status == TRY_AGAIN
    if isinstance(error, EpisodeFailed):
        return error.infrastructure
    return isinstance(error, EnvironmentGone) or is_infrastructure_failure(error)
