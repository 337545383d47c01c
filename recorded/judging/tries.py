"""A judge's tries at a session, until a verdict. Pure but for the clock and the judge.

Each try is a call that may fail in any way. A failed try is made again, after a growing pause. An
outage is waited out until the session's deadline; all other failures count.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.agents.harness.containment import ContainedCall
from seamlessflow.recorded.judging.judged_session import JudgedSession
from seamlessflow.recorded.judging.judges import SessionJudge
from seamlessflow.recorded.judging.settings import JudgeSection
from seamlessflow.recorded.judging.verdict import (
    FailedTry,
    JudgesWord,
    Rewarded,
    Unrewarded,
    failed_try,
    reward_in,
    turns_rewarded,
)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_NOT_WANTED = "its session has ended"
_LOOK_S = 0.5
"""Time between two looks at a thread that does not end."""
_log = logging.getLogger(__name__)


class Tries:
    """All tries by one judge in a process, at most `concurrency` at once.

    A try whose thread goes on after its time-out keeps its place until the thread ends.
    """

    def __init__(
        self,
        name: str,
        judge: SessionJudge,
        settings: JudgeSection,
        metrics: Metrics,
        clock: Callable[[], int] = now_ms,
        pauses: Callable[[int], float] | None = None,
    ) -> None:
        """Prepare; `pauses`: the pause in seconds after so many tries."""
        self._pauses = pauses or growing_pause_s
        self._name = name
        self._judge = judge
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._places = asyncio.Semaphore(settings.concurrency)
        self._leftovers: set[asyncio.Task[None]] = set()

    async def verdict(
        self, session: JudgedSession, deadline_ms: int, wanted: Callable[[], bool] = lambda: True
    ) -> JudgesWord:
        """Return the judge's verdict.

        After the deadline, or once it is not `wanted`, no further try is made. A try under way goes
        on to its end.
        """
        counted = tries = 0
        while True:
            async with self._places_of(session):
                if not wanted():
                    return Unrewarded(_NOT_WANTED)
                outcome = await self._try(session)
            if isinstance(outcome, Rewarded):
                return outcome
            tries += 1
            counted += not outcome.outage
            _log.warning("judge %s, session %s: %s", self._name, session.session_id, outcome.reason)
            if counted > self._settings.retries:
                more = f" (try {counted} of {self._settings.retries + 1})" if counted > 1 else ""
                return Unrewarded(outcome.reason + more)
            pause_s = max(outcome.again_after_s or 0.0, self._pauses(tries))
            if self._clock() + 1000 * pause_s >= deadline_ms:
                return Unrewarded(f"no reward in time; at last: {outcome.reason}")
            await asyncio.sleep(pause_s)
            self._metrics.counter("seamlessflow_judges_retries_total", judge=self._name).inc()

    async def close(self) -> None:
        """Close the judge, and stop waiting for threads that go on."""
        self._judge.close()
        for task in self._leftovers:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _try(self, session: JudgedSession) -> Rewarded | FailedTry:
        call = ContainedCall(self._judge.reward(session))
        try:
            with self._metrics.histogram("seamlessflow_judges_seconds", judge=self._name).time():
                await call.wait(self._settings.timeout_s)
            outcome = self._outcome(call, session)
        finally:
            if not call.over:
                call.stop()
        tries = "seamlessflow_judges_tries_total"
        self._metrics.counter(tries, judge=self._name, outcome=_kind(outcome)).inc()
        return outcome

    def _outcome(self, call: ContainedCall, session: JudgedSession) -> Rewarded | FailedTry:
        if not call.over:
            return FailedTry(f"no answer within {self._settings.timeout_s:g} s")
        raised = call.error()
        if raised is not None:
            return failed_try(raised)
        try:
            if self._settings.unit == "turns":
                return turns_rewarded(call.result(), [turn.turn_id for turn in session.turns])
            return Rewarded(reward_in(call.result(), self._name))
        except Exception as error:  # `BadResult`, or whatever a mapping of the judge's raises
            return failed_try(error)

    @asynccontextmanager
    async def _places_of(self, session: JudgedSession) -> AsyncIterator[None]:
        """Take a place for a try, and give it back."""
        await self._places.acquire()
        try:
            yield
        finally:
            self._free(session)

    def _free(self, session: JudgedSession) -> None:
        if not self._judge.goes_on(session):
            self._places.release()
            return
        task = asyncio.get_running_loop().create_task(self._free_later(session))
        self._leftovers.add(task)
        task.add_done_callback(self._leftovers.discard)

    async def _free_later(self, session: JudgedSession) -> None:
        while self._judge.goes_on(session):
            await asyncio.sleep(_LOOK_S)
        self._places.release()


def _kind(outcome: Rewarded | FailedTry) -> str:
    """Return an outcome's name in metrics."""
    if isinstance(outcome, Rewarded):
        return "reward"
    if outcome.outage:
        return "outage"
    return "unreadable" if outcome.unreadable else "failure"


def growing_pause_s(tries: int) -> float:
    """Return the pause in seconds after so many tries; it doubles up to a limit."""
    doubled: float = _FIRST_PAUSE_S * 2 ** min(tries - 1, 16)
    return min(doubled, _LONGEST_PAUSE_S)
