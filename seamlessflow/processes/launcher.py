"""Launcher for all of a run's processes on one machine: starts, watches and ends them.

Every process runs as `python -m module` with its settings in its environment and its own log file.
A process that ends by itself is started again, with its gang if it belongs to one. If that is not
allowed, the run ends with an error that shows the log's end (`supervisor.py`). A process that
stands still is ended by force (`watchdog.py`), and then handled like any other. The launcher is a
context manager: on leaving, it ends the processes that still run, the last started first.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.errors import BrokerFailed, ExitStatus, SeamlessFlowError
from seamlessflow.processes.child import Child, ChildEnded, ChildSpec
from seamlessflow.processes.restarts import ended_by_client
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import EndedPart, Supervisor
from seamlessflow.processes.usage import LoadMeter, ProcessLoad, peak_rss_mb
from seamlessflow.processes.watchdog import Act, StandsStill, Watchdog

_log = logging.getLogger(__name__)
BROKER = "broker"
_POLL_S = 0.1
_MEASURE_EVERY_S = 1.0
_STACKS_LINES = 1_000


MORE_TIME = "; set a larger start_timeout_s if it only needs longer"
"""Remedy for a start that took too long."""


class NotReady(SeamlessFlowError):
    """A condition did not come true in time; `tails` are the ends of the processes' logs."""

    lasting = False

    def __init__(
        self, what: str, timeout_s: float, tails: Mapping[str, str], remedy: str = ""
    ) -> None:
        self.what = what
        self.timeout_s = timeout_s
        self.tails = tails
        logs = "".join(f"\n--- end of the log of {name} ---\n{t}" for name, t in tails.items())
        super().__init__(f"{what}: not within {timeout_s:g} s{remedy}{logs}")


class Launcher:
    """Child processes by name."""

    def __init__(self, log_dir: Path, stop: Stop, supervisor: Supervisor) -> None:
        self._log_dir = log_dir
        self._stop = stop
        self._supervisor = supervisor
        self._children: dict[str, Child] = {}
        self._broker: Broker | None = None
        self._peaks: dict[str, float] = {}
        self._meter = LoadMeter({})
        self._last_measured_s = 0.0
        self._watchdog = Watchdog(supervisor.frozen_s)
        self._ended_by_force: dict[str, str] = {}
        self._report: Callable[[StandsStill], object] = lambda still: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Usually no child is left: this is for an error before the orderly stop.
        for name in reversed(list(self._children)):
            self.end([name])
        self._watchdog.close()

    @property
    def running(self) -> Mapping[str, Child]:
        """Processes that were started and not ended by the launcher."""
        return self._children

    @property
    def peaks_mb(self) -> Mapping[str, float]:
        """Each process's largest resident memory so far, in MiB, ended processes included."""
        return dict(sorted(self._peaks.items()))

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids of its broker and of children that it started and did not end."""
        pids = {name: child.pid for name, child in self._children.items()}
        broker = self._broker.pid if self._broker else None
        return pids if broker is None else {**pids, BROKER: broker}

    def measure_loads(self) -> None:
        """Measure all processes' load from now on."""
        self._meter = LoadMeter(self.pids)

    def loads(self) -> Mapping[str, ProcessLoad]:
        """Return each process's load since `measure_loads`, ended processes included."""
        return self._meter.loads(self.pids)

    def stopping(self) -> bool:
        """Return whether the user asked to stop; a wait for Kafka then ends."""
        return self._stop.asked

    def kafka_ended(self) -> bool:
        """Return whether a wait for Kafka that does not call `check` must end.

        It must if the user asked to stop, or if the embedded broker ended: only `check` restarts
        it.
        """
        return self.stopping() or (self._broker is not None and not self._broker.running)

    def start(self, spec: ChildSpec) -> Child:
        """Start a process; return at once."""
        if spec.name in self._children:
            raise ValueError(f"{spec.name} runs already")
        self._log_dir.mkdir(parents=True, exist_ok=True)
        added = self._watchdog.watch(spec.name)
        child = Child(spec, self._log_dir / f"{spec.name}.log", added)
        self._children[spec.name] = child
        return child

    def watch(self, broker: Broker) -> None:
        """Also watch the embedded broker, which is restarted on its data and port."""
        self._broker = broker
        self._watchdog.watch_broker(BROKER, broker.settings)

    def report_to(self, report: Callable[[StandsStill], object]) -> None:
        """Call `report` with each process that stands still, before it is ended."""
        self._report = report

    def check(self) -> None:
        """End by force what stands still; start again what ended and is due.

        Raises `ChildEnded` if the run cannot go on without a process, `Interrupted` if asked to
        stop.
        """
        self._stop.check()
        for still in self._watchdog.look(self._runs):
            self._end_by_force(still)
        for child in list(self._children.values()):
            # A gang's child may already have been taken out with another one that ended.
            if child.failed and child.spec.name in self._children:
                self._ended(child)
        self._check_broker()
        self._supervisor.start_due()
        if time.monotonic() - self._last_measured_s > _MEASURE_EVERY_S:
            self._last_measured_s = time.monotonic()
            for name, pid in self.pids.items():
                self._note(name, peak_rss_mb(pid))
            self._meter.look(self.pids)

    def run(self, spec: ChildSpec, timeout_s: float) -> None:
        """Run a finite process to its end.

        Raises `ChildEnded` if it fails, `NotReady` after `timeout_s`.
        """
        child = self.start(spec)
        try:
            self.wait_for(f"end of {spec.name}", lambda: child.exit_status == 0, timeout_s)
        finally:
            self.end([spec.name])

    def wait_for(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition holds, and watch the processes meanwhile.

        Raises `NotReady`, and what `check` raises.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                tails = {name: child.tail() for name, child in self._children.items()}
                raise NotReady(what, timeout_s, tails)
            self._stop.wait(_POLL_S)

    def end(self, names: Iterable[str]) -> None:
        """Stop processes side by side; kill those that exceed their own limits."""
        children = {name: self._children.pop(name, None) for name in names}
        for name in children:
            self._supervisor.forget(name)
            self._watchdog.forget(name)
        ending = {name: child for name, child in children.items() if child and child.running}
        for name, child in ending.items():
            self._note(name, peak_rss_mb(child.pid))
            child.ask_to_end()
        asked_s = time.monotonic()  # all limits run from here, not one after the other
        for name, child in ending.items():
            left_s = child.spec.stop_s - (time.monotonic() - asked_s)
            if not child.wait(max(0.0, left_s)):
                _log.warning("%s did not end within %g s; killed", name, child.spec.stop_s)
                child.kill()

    def _ended(self, child: Child) -> None:
        """Plan to start a child and its gang again. Raises `ChildEnded`."""
        spec = child.spec
        if not spec.supervised:
            part = self._part(child)
            raise ChildEnded(part.name, part.exit_status, part.log_file, part.log_tail, part.before)
        gang = [member for member in self._children.values() if _together(member.spec, spec)]
        self.end([member.spec.name for member in gang])
        # The others in a gang may be seen to end before the child that is at fault.
        lasting = [member for member in gang if member.exit_status == ExitStatus.LASTING]
        part = self._part(lasting[0] if lasting else child)
        self._supervisor.ended(part, lambda: [self.start(member.spec) for member in gang])

    def _part(self, child: Child) -> EndedPart:
        name = child.spec.name
        status = child.exit_status or 0
        before = self._ended_by_force.pop(name, "")
        # All threads' stacks stand behind what the client said, so many lines are read.
        fault = ended_by_client(status, child.tail(_STACKS_LINES))
        return EndedPart(name, status, child.log_file, child.tail(), before, fault)

    def _check_broker(self) -> None:
        broker = self._broker
        if broker is None or broker.running or self._supervisor.plans(BROKER):
            return
        self._broker_ended(broker, broker.exit_status or 0, broker.tail())

    def _broker_ended(self, broker: Broker, status: int, tail: str) -> None:
        """Plan to start the broker again; a failed start counts as another end."""

        def start() -> None:
            try:
                broker.start()
            except BrokerFailed as error:
                tail = f"{error.log_tail}\nnot started: {error.reason}".lstrip()
                self._broker_ended(broker, ExitStatus.UNEXPECTED, tail)

        before = self._ended_by_force.pop(BROKER, "")
        self._supervisor.ended(EndedPart(BROKER, status, broker.log_file, tail, before), start)

    def _runs(self, name: str) -> bool:
        if name == BROKER:
            return self._broker is not None and self._broker.running
        return name in self._children and self._children[name].running

    def _end_by_force(self, still: StandsStill) -> None:
        if still.act is Act.ABORT:
            _log.warning("%s %s: ended by force", still.name, still)
            self._ended_by_force[still.name] = str(still)
            self._report(still)
        if still.name == BROKER:
            if self._broker is not None:
                self._broker.force_to_end()
        elif still.act is Act.ABORT:
            self._children[still.name].abort()
        else:
            self._children[still.name].force_to_end()

    def _note(self, name: str, peak_mb: float) -> None:
        self._peaks[name] = max(self._peaks.get(name, 0.0), peak_mb)


def _together(first: ChildSpec, other: ChildSpec) -> bool:
    return first.name == other.name or (first.gang != "" and first.gang == other.gang)
