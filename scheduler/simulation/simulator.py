"""The simulator: a discrete-event model of workers, agents and trainer around the real `decide`.

`simulate` returns the `control` log of a run on a modelled cluster, and what each worker did. Only
costs are modelled; every decision is made by `scheduler.decisions.decide` over the folds of that
log, as in the scheduler process. Times in milliseconds. Called by
`scheduler/simulation/__main__.py` and tests.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from scheduler.decisions import strategies
from scheduler.decisions.decide import Rules, View, decide, finished
from scheduler.settings import SchedulerSettings
from scheduler.simulation.fleet import ClusterModel, SimulatedFleet, SimulatedWorker
from scheduler.simulation.trainer import SimulatedTrainer, published
from scheduler.state import fleet, state
from scheduler.tasks.source import TaskRow, listed
from schemas import records as r
from schemas.records import Record

TICK_MS = 100
TASKS = 64


@dataclass(frozen=True)
class SimulatedRun:
    """The log and the workers of a simulated run."""

    control: list[Record]
    workers: Mapping[str, SimulatedWorker]
    staleness: list[int]
    """Age in optimizer steps of each group's oldest sample, when it was trained."""
    view: View
    ended_ms: float

    def step_ends(self) -> list[int]:
        """Return the times at which the optimizer steps ended."""
        return [record.at_ms for record in self.control if isinstance(record, r.StepCompleted)]

    def idle_share(self, after_step: int = 2) -> float:
        """Return the idle share of worker time, from the end of a step to the end of the last."""
        ends = self.step_ends()
        start, end = ends[after_step], ends[-1]
        spans = [span for worker in self.workers.values() for span in worker.spans]
        used = sum(span.within(start, end) for span in spans)
        return 1 - used / (len(self.workers) * (end - start))

    def count(self, kind: type[Record]) -> int:
        """Return the number of records of a kind on `control`."""
        return sum(isinstance(record, kind) for record in self.control)


def simulate(
    settings: SchedulerSettings,
    cluster: ClusterModel,
    longest_ms: float = 10_000_000,
    on_step: Callable[[int], None] = lambda steps: None,
) -> SimulatedRun:
    """Return a run simulated to its last step, or to `longest_ms`.

    Calls `on_step` with the number of steps after each. Raises `UnknownStrategy`.
    """
    return Simulation(settings, cluster, longest_ms, on_step).run()


@dataclass(eq=False)
class Simulation:
    """One run: an agenda of coming events, and the log that they leave."""

    _settings: SchedulerSettings
    _cluster: ClusterModel
    _longest_ms: float
    _on_step: Callable[[int], None]
    now: float = 0.0
    _order: Iterator[int] = field(default_factory=count)
    _view: View = field(default_factory=View)
    _log: list[Record] = field(default_factory=list)
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rules = simulated_rules(self._settings, self._longest_ms)
        self._fleet = SimulatedFleet(self._cluster, self)
        self._trainer = SimulatedTrainer(self._settings.run, self._cluster, self, self._fleet)

    def after(self, delay: float, happen: Callable[[], None]) -> None:
        """Call `happen` after `delay` milliseconds."""
        heapq.heappush(self._agenda, (self.now + delay, next(self._order), happen))

    def append(self, record: Record) -> None:
        """Append a record to `control`; scheduler, workers and trainer read it at once."""
        # Costs are folded at the step, so usage comes first.
        if isinstance(record, r.StepCompleted):
            self._append_usage(record.at_ms)
        self._log.append(record)
        self._view = replace(self._view, state=state.apply(self._view.state, record))
        if isinstance(record, r.RoleAssigned):
            self._fleet.assign(record)
        self._trainer.react(record)
        if isinstance(record, r.StepCompleted):
            self._on_step(record.step + 1)

    def run(self) -> SimulatedRun:
        """Return the run after its last step, or after `longest_ms`."""
        self._begin()
        while self.now < self._longest_ms:
            self._decide()
            self._fleet.serve()
            if finished(self._view.state, self._rules.settings):
                break
            # The order of insertion breaks ties, so that equal runs give equal logs.
            self.now, _, happen = heapq.heappop(self._agenda)
            happen()
        workers, staleness = self._fleet.workers, self._trainer.staleness
        return SimulatedRun(self._log, workers, staleness, self._view, self.now)

    def _begin(self) -> None:
        self.append(r.SchedulerClaimed(epoch=1, scheduler="simulated", at_ms=0))
        self.append(published(self._rules.settings.run.policy, 0, 0))
        known = self._view.fleet
        for name, tags in self._cluster.workers.items():
            for process in tags:
                known = fleet.apply(known, _heartbeat(name, process, tags), 0)
        self._view = replace(self._view, fleet=known)
        self._tick()

    def _tick(self) -> None:
        """Keep the agenda from running empty: the scheduler also acts on the time alone."""
        self.after(TICK_MS, self._tick)

    def _decide(self) -> None:
        # As the process does: decide again until nothing follows from what was just written.
        while decided := decide(self._view, self._rules, round(self.now)):
            for _, record in decided:
                if isinstance(record, r.Task):
                    self._issue(record)
                elif not isinstance(record, r.WorkerAssignment):
                    self.append(record)

    def _issue(self, task: r.Task) -> None:
        samples = {**self._view.issued.get(task.group_id, {}), task.sample: task.attempt}
        issued = {**self._view.issued, task.group_id: samples}
        self._view = replace(self._view, issued=issued)
        self._fleet.issue(task)

    def _append_usage(self, until_ms: int) -> None:
        since_ms = self._view.state.steps.ended_ms
        for name, worker in self._fleet.workers.items():
            spans = [span for span in worker.spans if span.kind == "rollout"]
            usage = r.WorkerUsage(
                at_ms=until_ms,
                worker=name,
                incarnation=name,
                process="rollout",
                from_ms=since_ms,
                decoding_ms=round(sum(span.within(since_ms, until_ms) for span in spans)),
            )
            self.append(usage)


def simulated_rules(settings: SchedulerSettings, longest_ms: float) -> Rules:
    """Return rules with made-up tasks and heartbeats that never time out."""
    section = settings.scheduler
    limits = section.model_copy(update={"heartbeat_timeout_s": longest_ms / 1000})
    rows = tuple(TaskRow(f"task-{number}", b"{}", {}) for number in range(TASKS))
    return Rules(
        settings.model_copy(update={"scheduler": limits}),
        strategies.named(section.policy),
        {"train": listed(rows)},
    )


def _heartbeat(worker: str, process: str, tags: tuple[str, ...]) -> r.WorkerHeartbeat:
    return r.WorkerHeartbeat(
        worker=worker,
        incarnation=worker,
        process=process,
        tags=tags,
        role="none",
        assignment=-1,
        state="ready",
        at_ms=0,
    )
