"""Agents that stall their process: they block the event loop, or go on after their end.

An `async` function that computes, or waits without `await`, blocks the event loop. It holds up all
sessions in its process. The launcher ends a process that stands still for `restarts.frozen_s`; the
watch names the place in the code long before.

Agents that ignore the request to end are reported and counted. Their sessions are closed and their
places are free, but they still hold memory and a thread. Once as many of them are left as the
process may run at once, the process ends with a passing fault. Its supervisor then starts another.
Called by `play.py` and `runner.py`.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from traceback import FrameSummary

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.records import ProgressStalled

_LIMIT_S = 5.0
"""The loop may stand still for so long without a notice."""
_LOOKS = 5
"""Looks within that time."""
_ADVICE = "await there, or make the agent a plain function, which has a thread of its own"
_IMPORT_ADVICE = "import at the top of the agent's file, which is loaded before the first task"
_IMPORTLIB = "<frozen importlib"
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
END_GRACE_S = 5.0
"""Time that an agent has to end once it was asked to."""
_log = logging.getLogger(__name__)

Report = Callable[[ProgressStalled], object]
StillRuns = Callable[[], bool]


class LoopWatch:
    """Thread that checks whether the running event loop goes on. It reports each place once."""

    def __init__(self, notice: Callable[[str], object], limit_s: float = _LIMIT_S) -> None:
        """Call `notice`, in the thread, with what blocks the loop once it stands for `limit_s`."""
        self._notice = notice
        self._limit_s = limit_s
        self._went_on_s = time.monotonic()
        self._told: set[str] = set()
        self._loop_thread = threading.get_ident()
        self._closing = threading.Event()
        self._going_on = asyncio.get_running_loop().create_task(self._go_on())
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()
        self._going_on.get_loop().call_soon_threadsafe(self._going_on.cancel)

    async def _go_on(self) -> None:
        while True:
            self._went_on_s = time.monotonic()
            await asyncio.sleep(self._limit_s / _LOOKS)

    def _look(self) -> None:
        while not self._closing.wait(self._limit_s / _LOOKS):
            stands_s = time.monotonic() - self._went_on_s
            if stands_s < self._limit_s:
                continue
            running = self._running()
            place = place_of(running)
            if place and place not in self._told:
                self._told.add(place)
                self._notice(
                    f"{place} blocks the event loop for {stands_s:.0f} s, and with it all agents "
                    f"of this process: {advice_for(running)}"
                )

    def _running(self) -> Sequence[FrameSummary]:
        """Return what the loop's thread runs, the innermost first; nothing if it only waits."""
        stack = traceback.extract_stack(sys._current_frames().get(self._loop_thread))
        return list(takewhile(lambda frame: not _of_loop(frame), reversed(stack)))


class AgentsGoOn(SeamlessFlowError):
    """As many agents go on after their end as this process may run."""

    lasting = False

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(
            f"{count} agents ignore that they were told to end, as many as agents.concurrency: "
            "this process ends, and they with it"
        )


class Leftovers:
    """Agents that go on after their end, by session. Used from the event loop."""

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
        """Check after the grace whether a session's agent, just asked to end, has ended."""
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
        report = _left_behind(self._process, session, len(self._left), now_ms())
        _log.error("%s", report.detail)
        self._report(report)
        if len(self._left) >= self._most:
            self._give_up(AgentsGoOn(len(self._left)))


def place_of(running: Sequence[FrameSummary]) -> str:
    """Return the file and line that frames, the innermost first, are at; empty without frames.

    For library code this is where it was called, usually in the agent's own file.
    """
    in_files = [frame for frame in running if not frame.filename.startswith("<")] or running
    if not in_files:
        return ""
    frame = next((file for file in in_files if not _of_library(file)), in_files[0])
    return f"{frame.filename}:{frame.lineno} ({frame.name})"


def advice_for(running: Sequence[FrameSummary]) -> str:
    """Return what to do about these frames: an import cannot await anything."""
    imports = any(frame.filename.startswith(_IMPORTLIB) for frame in running)
    return _IMPORT_ADVICE if imports else _ADVICE


def _left_behind(process: str, session: str, count: int, now_ms: int) -> ProgressStalled:
    """Return the report about an agent that goes on after its end. Pure."""
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


def _of_loop(frame: FrameSummary) -> bool:
    if frame.filename == __file__:  # it goes on, if late: the machine is busy
        return True
    return Path(frame.filename).parent.name == "asyncio" or frame.filename.endswith("selectors.py")


def _of_library(frame: FrameSummary) -> bool:
    return frame.filename.startswith(_LIBRARIES)
