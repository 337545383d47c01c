"""Driver of faults: hits processes of a run, waits until it is well again, audits its log."""

import os
import signal
import time
from collections.abc import Callable, Sequence

import httpx

from seamlessflow.recorded.audit.audit import follow
from seamlessflow.recorded.audit.auditor import AuditReport
from seamlessflow.schemas import records as r
from tests import http
from tests.faults.faults import AGENTS, BROKER, TRAINING, Fault, Kind
from tests.faults.faulty_run import FREEZE_S, START_S, FaultyRun
from tests.faults.tally import Tally

WELL_S = 240.0
"""Most time until the system is well again; the start of a trainer takes 13 s of CPU."""
MOMENT_S = 6.0
"""Most time to wait for the moment; another fault may keep it from coming."""
_LOST_S = 30.0
_ALIVE_S = 1.0
_AUDIT_S = 60.0
"""Most time of an audit of what is new on the log."""


class Driver:
    """Faults on one run. Used from one thread."""

    def __init__(self, run: FaultyRun, say: Callable[[str], object] = print) -> None:
        self._run = run
        self._say = say
        self._audit_ends_s = time.monotonic() + START_S
        self._reports = follow(
            run.kafka,
            run.config.trained_dir,
            every_s=0,
            stopping=lambda: time.monotonic() > self._audit_ends_s,
        )
        self.tally = Tally()

    def start(self) -> None:
        """Wait until the run trains."""
        self._await_well(0, START_S)

    def await_well(self) -> None:
        """Wait until all processes run and new sessions and a new step were made."""
        self._await_well(self._run.log.mark, WELL_S)

    def hit(self, faults: Sequence[Fault]) -> None:
        """Hit processes, each while the faults before it last; thaw them; await health; audit."""
        frozen, struck = [], []
        for fault in faults:
            mark = self._await_moment(fault)
            pid = self._run.pid(fault.process)
            if pid is None:
                continue  # the fault before it has ended it
            os.kill(pid, signal.SIGKILL if fault.kind is Kind.KILL else signal.SIGSTOP)
            struck.append(fault)
            if fault.kind is Kind.FREEZE:
                frozen.append((fault, pid, mark, time.monotonic()))
        # First those without whom the log does not report that a worker is lost.
        for fault, pid, mark, at_s in sorted(frozen, key=lambda entry: entry[0].worker is not None):
            try:
                self._await_lease(fault, mark, at_s)
            finally:
                _thaw(pid)
        over_s = time.monotonic()
        self.await_well()
        took_s = time.monotonic() - over_s
        self.audit()
        if struck:
            self.tally.add(struck[0].what if len(struck) == 1 else "two at once", took_s)
        self._say(f"{took_s:5.1f} s after  {'; '.join(map(str, struck))}")

    def audit(self) -> AuditReport:
        """Audit what is new on the log; fail at a violation."""
        self._audit_ends_s = time.monotonic() + _AUDIT_S
        report = next(self._reports, None)
        assert report is not None, f"no audit within {_AUDIT_S:g} s"
        assert report.clean, "\n".join(map(str, report.violations))
        unexpected = [line for line in self._run.ended if "exit status 1;" in line]
        assert unexpected == []
        return report

    def finish(self) -> AuditReport:
        """End the agents, wait for the trajectories of all closed sessions; audit, say counts."""
        self._run.launcher.end([AGENTS])
        log = self._run.log
        self._run.until(lambda: not log.closed_without_trajectory(), "trajectories", WELL_S)
        report = self.audit()
        counts = ", ".join(
            f"{result.check}: {result.checked}, {result.open} open" for result in report.results
        )
        for line in [*self.tally.lines(), f"audited {counts}"]:
            self._say(line)
        return report

    def _await_moment(self, fault: Fault) -> int:
        """Return the mark of the log at which the fault's moment came."""
        log = self._run.log
        since = log.mark

        def came() -> bool:
            records = log.since(since, fault.moment)
            if fault.moment is r.TurnProgressed:
                worker = fault.worker
                records = [
                    record
                    for record in records
                    if worker in (None, getattr(record, "worker", None))
                ]
            return len(records) >= fault.count

        self._run.happens(came, MOMENT_S)
        return log.mark

    def _await_lease(self, fault: Fault, mark: int, at_s: float) -> None:
        """Wait until what the frozen process held is no longer its own."""
        run, worker = self._run, fault.worker
        family = "train" if fault.process == TRAINING else "rollout"

        def lost(record: r.WorkerLost) -> bool:
            return record.worker == worker and record.process == family

        def over() -> bool:
            return time.monotonic() > at_s + FREEZE_S

        if worker is None:
            run.until(over, f"the lease of {fault.process}", _LOST_S)
        else:
            run.until(lambda: bool(run.log.since(mark, r.WorkerLost, lost)), "its loss", _LOST_S)

    def _await_well(self, mark: int, limit_s: float) -> None:
        run = self._run
        names = [*run.launcher.running, BROKER]

        def missing() -> list[str]:
            log = run.log
            dead = [name for name in names if run.pid(name) is None]
            sessions = [] if len(log.finished_since(mark)) >= 3 else ["new sessions"]
            steps = [] if log.since(mark, r.StepCompleted) else ["a step"]
            return [*dead, *sessions, *steps]

        try:
            run.until(lambda: not missing(), "health", limit_s)
        except Exception as error:
            error.add_note(f"missing: {missing()}")
            raise
        for url in run.urls:
            run.until(lambda url=url: _ready(url), f"{url} ready", limit_s)  # type: ignore[misc]


def _ready(url: str) -> bool:
    try:
        return http.get(f"{url}/ready", timeout=_ALIVE_S).status_code == 200
    except httpx.TransportError:
        return False


def _thaw(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
