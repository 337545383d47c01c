"""An environment package as a run's agent: one more kind behind `harness/agent.py`.

A few processes share the episodes. If one ends, its episodes count as infrastructure failures, so
their samples are tried again. The next episode starts a new process. After a failed start it first
waits, longer each time.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from seamlessflow.producers.agents.environments.child import (
    EnvironmentChild,
    EnvironmentGone,
    EnvironmentSpec,
    EnvironmentUnusable,
)
from seamlessflow.producers.agents.environments.leftovers import end_abandoned
from seamlessflow.producers.agents.harness.session import AgentSession, AgentSessions

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 30.0


class EnvironmentAgent:
    """Agent whose episodes run in an environment package's processes. For one event loop."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        processes: int,
        live: int,
        warm_up_limit_s: float,
        episodes: int = 0,
    ) -> None:
        """`processes`, `live`: at most so many processes and episodes at the same time.
        `episodes`: a process is ended after so many; 0: no limit.
        """
        self._spec = spec
        self._episodes = episodes
        self._processes = processes
        self._live = asyncio.Semaphore(live)
        self._warm_up_limit_s = warm_up_limit_s
        self._children: list[EnvironmentChild] = []
        self._starting = asyncio.Lock()
        self._starts: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        """Both go on if the episode that waits for them is stopped."""
        self._room = asyncio.Condition()
        self._failed_starts = 0
        self._not_before_s = 0.0

    async def begin(self) -> None:
        """Start the first process. Raises `EnvironmentUnusable`: no later one would do better.

        Before that, end what this process's predecessor left, if it was killed.
        """
        await asyncio.to_thread(end_abandoned)
        if self._spec.note:
            _log.warning("%s: %s", self._spec.name, self._spec.note)
        begun_s = time.monotonic()
        self._children.append(await self._start())
        _log.info("%s is warm after %.1f s", self._spec.name, time.monotonic() - begun_s)

    async def run(self, payload: bytes, session: AgentSessions) -> object:
        """Run an episode. Raises `EpisodeFailed` and `EnvironmentGone`."""
        async with self._live:
            child = await self._child()
            try:
                return await child.run(payload, _told(session))
            finally:
                async with self._room:
                    self._room.notify()

    @property
    def children(self) -> Sequence[EnvironmentChild]:
        """Processes that were started and not closed."""
        return tuple(self._children)

    def goes_on(self, _: AgentSessions) -> bool:
        """Return False: an episode that ignores its end goes on in another process."""
        return False

    async def close(self) -> None:
        """End all processes, also one that is about to start."""
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, *self._ends, return_exceptions=True)
        children, self._children = self._children, []
        await asyncio.gather(*(child.close() for child in children))

    async def _child(self) -> EnvironmentChild:
        """Return the process with the fewest episodes, once there is one with room."""
        while True:
            await self._forget_ended()
            least = min(filter(self._has_room, self._children), key=len, default=None)
            full = len(self._children) >= self._processes
            if least is not None and (full or not len(least)):
                return least
            if not full:
                await _kept(self._starts, self._add(len(self._children)))
            else:
                async with self._room:
                    await self._room.wait()

    async def _add(self, count: int) -> None:
        async with self._starting:
            if len(self._children) != count:
                return  # another episode started it meanwhile
            await asyncio.sleep(max(0.0, self._not_before_s - time.monotonic()))
            try:
                child = await self._start()
            except EnvironmentUnusable as error:
                self._failed_starts += 1
                pause_s = min(_LONGEST_PAUSE_S, 2.0**self._failed_starts)
                self._not_before_s = time.monotonic() + pause_s
                raise EnvironmentGone(str(error)) from error
            # Look up the list only after the start, which may have replaced it meanwhile.
            self._children.append(child)
            self._failed_starts = 0
        async with self._room:
            self._room.notify_all()  # it has room for several that wait

    async def _start(self) -> EnvironmentChild:
        child = await EnvironmentChild.open(self._spec)
        try:
            await child.warm_up(self._warm_up_limit_s)
        except asyncio.CancelledError:
            await child.close()
            raise
        return child

    async def _forget_ended(self) -> None:
        ended = [child for child in self._children if self._is_over(child)]
        self._children = [child for child in self._children if child not in ended]
        for child in ended:
            await _kept(self._ends, child.close())

    def _has_room(self, child: EnvironmentChild) -> bool:
        return child.room and not self._is_used_up(child)

    def _is_used_up(self, child: EnvironmentChild) -> bool:
        return 0 < self._episodes <= child.begun

    def _is_over(self, child: EnvironmentChild) -> bool:
        return not child.running or (self._is_used_up(child) and not len(child))


async def _kept(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Wait for work, kept in `tasks`. If the wait is cancelled, the work goes on."""
    task = asyncio.create_task(work)
    tasks.add(task)

    def forget(ended: asyncio.Task[None]) -> None:
        tasks.discard(ended)
        if not ended.cancelled():
            ended.exception()  # there may be no caller left to raise it for

    task.add_done_callback(forget)
    await asyncio.shield(task)


def _told(session: AgentSessions) -> dict[str, Any]:
    """Return what an adapter sees of its session, or of each role's session."""
    if isinstance(session, AgentSession):
        return {"session": _shown(session)}
    return {"sessions": {role: _shown(of_role) for role, of_role in session.items()}}


def _shown(session: AgentSession) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "base_url": session.base_url,
        "api_key": session.api_key,
        "model": session.model,
        "deadline_ms": session.deadline_ms,
        "metadata": dict(session.metadata),
        "turn_limit": session.turn_limit,
        "messages": list(session.messages),
    }
