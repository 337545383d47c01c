"""Agents that were told to end and go on: reported, counted, and in the end a cause to start anew.

Their sessions are closed and their places free; what they still hold is memory and a thread. A
process in which as many are left as it may run at once ends with a passing fault, and whatever
supervises it starts another. Called by `episode.py`.
"""

import asyncio
import logging
from collections.abc import Callable

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.records import ProgressStalled

END_GRACE_S = 5.0
"""Time that an agent has to end once it was told to."""
_log = logging.getLogger(__name__)

Report = Callable[[ProgressStalled], object]
StillRuns = Callable[[], bool]


class AgentsGoOn(SeamlessFlowError):
    """As many agents go on behind their end as this process may run."""

    lasting = False

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            f"{count} agents ignore that they were told to end, as many as agents.concurrency: "
            "this process ends, and they with it"
        )


class Leftovers:
    """Agents that go on behind their end, by session. Used from the event loop."""

    def __init__(
        self,
        process: str,
        most: int,
        report: Report,
        give_up: Callable[[AgentsGoOn], object],
        metrics: Metrics,
    ) -> None:
        self._process = process
        self._most = most
        self._report = report
        self._give_up = give_up
        self._count = metrics.counter("seamlessflow_agents_left_total")
        self._left: dict[str, StillRuns] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def watch(self, session: str, still_runs: StillRuns) -> None:
        """Look after the grace if the agent of a session, told to end just now, has ended."""
        watch = asyncio.get_running_loop().create_task(self._look(session, still_runs))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _look(self, session: str, still_runs: StillRuns) -> None:
        await asyncio.sleep(END_GRACE_S)
        if not still_runs():
            return
        self._left = {name: runs for name, runs in self._left.items() if runs()}
        self._left[session] = still_runs
        self._count.inc()
        report = left_behind(self._process, session, len(self._left), now_ms())
        _log.error("%s", report.detail)
        self._report(report)
        if len(self._left) >= self._most:
            self._give_up(AgentsGoOn(len(self._left)))


def left_behind(process: str, session: str, count: int, now_ms: int) -> ProgressStalled:
    """Return the report about an agent that goes on behind its end. Pure."""
    grace_ms = round(1000 * END_GRACE_S)
    return ProgressStalled(
        at_ms=now_ms,
        what="agent",
        detail=f"the agent of {session} was told to end and goes on, {count} of them in {process}; "
        "its session is closed and its place is free",
        since_ms=now_ms - grace_ms,
        process=process,
        deadline_ms=grace_ms,
    )
