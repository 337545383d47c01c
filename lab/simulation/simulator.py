"""The simulator: a discrete-event model of workers, agents and trainer around the real `decide`.

`simulate` returns a run's `control` log on a modelled cluster. Only things that take time are
modelled. `decide` makes every decision from that log's folds, as in the scheduler process. It is
called after each record that changes them, and at times that decisions depend on (`next_due_ms`).
`seamlessflow simulate` and tests call this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path

from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.agents import DroppedGroups, SimulatedAgents, WholeBatches
from seamlessflow.lab.simulation.cluster import ModelledCluster, ModelledWorker
from seamlessflow.lab.simulation.engine import SimulatedTurn
from seamlessflow.lab.simulation.fleet import SimulatedFleet
from seamlessflow.lab.simulation.router import Router
from seamlessflow.lab.simulation.trainer import SimulatedTrainer, published
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.decisions.decide import Rules, View, decide, finished, next_due_ms
from seamlessflow.scheduler.decisions.strategies import registry
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.state import fleet, state
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.scheduler.tasks.source import TaskRow, listed
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

LONGEST_S = 1e7
_QUIET = 100
"""A run ends when this many due times have passed without any event: it waits in vain."""
TASKS = 64


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated run's log, and the figures that the log does not hold."""

    control: list[Record]
    staleness: list[int]
    """Age in optimizer steps of each trained session's first token."""
    tokens: list[float]
    """Tokens trained in each step, prompts included."""
    ages: Mapping[int, float]
    """The trained sessions' sampled tokens, by age in optimizer steps."""
    recycled: float
    """Those among them that came before a weight update during their session."""
    cancelled: float
    """Tokens from sessions that were stopped because their group was complete without them."""
    mean_drawn: float
    """Mean tokens that a begun session would sample; some sessions are stopped before."""
    view: View
    ended_s: float
    overdue: float
    """Tokens from sessions that were stopped at their deadline."""
    vain: str
    """Why it was ended early, because none of its groups could be trained."""
    sessions_wanted: int
    """Most sessions that were played, or waited for an agent, at a time."""
    agents_full_s: float
    """Time during which sessions waited for an agent (`ModelledCluster.sessions`)."""


def simulate(
    settings: SchedulerSettings,
    cluster: ModelledCluster,
    workload: Workload,
    longest_s: float = LONGEST_S,
    whole_batches: bool = False,
) -> SimulatedRun:
    """Return a run simulated to its last step, or to `longest_s`.

    `whole_batches`: see `lab/simulation/agents.py`. Raises `UnknownStrategy`.
    """
    return Simulation(settings, cluster, workload, lambda _: None, whole_batches).run(longest_s)


def simulate_going_on(
    settings: SchedulerSettings,
    cluster: ModelledCluster,
    workload: Workload,
    on_step: Callable[[int], None] = lambda steps: None,
    whole_batches: bool = False,
) -> SimulatedRun:
    """Return the same steps in a run that goes on after them, so that groups begin until the last.

    In a run's last lag + 1 steps no group begins, and its engines run empty. Few of a long run's
    steps are like that, but they would distort a short simulation's figures. Calls `on_step` with
    the step count after each step.
    """
    run = settings.run
    further = ceil(run.lag + 1 + settings.pacing.extra_groups)
    longer = run.model_copy(update={"steps": run.steps + further})
    going_on = settings.model_copy(update={"run": longer})
    simulation = Simulation(going_on, cluster, workload, on_step, whole_batches)
    return simulation.run(LONGEST_S, run.steps)


class Simulation:
    """One run: an agenda of coming events, and the log that they leave."""

    def __init__(
        self,
        settings: SchedulerSettings,
        cluster: ModelledCluster,
        workload: Workload,
        on_step: Callable[[int], None],
        whole_batches: bool,
    ) -> None:
        self._batches = WholeBatches(settings.run.groups_per_step) if whole_batches else None
        self._rules = simulated_rules(settings, len(cluster.workers))
        self._cluster = cluster
        self._on_step = on_step
        self._view = View()
        self._log: list[Record] = []
        self._changed = False
        self._steps = 0
        self._dropped = DroppedGroups()
        self._agenda = Agenda()
        router = Router(self._agenda)
        self._fleet = SimulatedFleet(
            cluster, self._agenda, router, self, self._answered, settings.run
        )
        self._trainer = SimulatedTrainer(
            settings.run, cluster, workload, self._agenda, self, self._fleet
        )
        self._agents = SimulatedAgents(
            workload, self._agenda, router, self._trainer.collect, cluster.sessions
        )

    def append(self, record: Record) -> None:
        """Append a record to `control`; scheduler, workers and trainer read it at once."""
        self._log.append(record)
        after = state.apply(self._view.state, record)
        if after is not self._view.state:
            self._view = replace(self._view, state=after)
            self._changed = True
        self._fleet.note(record)
        self._dropped.note(record)
        further = self._batches is not None and self._batches.apply(record)
        match record:
            case r.RoleAssigned():
                self._fleet.assign(record)
            case r.WeightsPublished():
                self._fleet.publish(record.version)
            case r.StepCompleted():
                self._steps += 1
                self._on_step(record.step + 1)
            case r.GroupReady() | r.GroupDropped() if self._rules.settings.pacing.redundancy:
                self._agents.end_group(record.group_id)
        self._trainer.react(record)
        if further:
            self._play()

    def run(self, longest_s: float, steps: int | None = None) -> SimulatedRun:
        """Return the run after its last step, or after `steps` steps, or after `longest_s`."""
        self._begin()
        agenda = self._agenda
        due_s = 0.0
        quiet = 0
        vain = ""
        while agenda.now_s < longest_s and quiet < _QUIET and not vain and self._steps != steps:
            if self._changed or agenda.now_s >= due_s:
                length = len(self._log)
                self._decide()
                happened = agenda.next_s < inf or len(self._log) > length
                quiet = 0 if happened else quiet + 1
                if finished(self._view.state, self._rules.settings):
                    break
                due_ms = next_due_ms(self._view, self._rules, agenda.now_ms)
                due_s = longest_s if due_ms is None else due_ms / 1000
            agenda.run_until(min(agenda.next_s, due_s, longest_s))
            vain = self._dropped.in_vain(
                self._rules.settings, self._agents.overdue, self._agents.begun
            )
        for usage in self._fleet.report():
            self.append(usage)
        return SimulatedRun(
            self._log,
            self._trainer.staleness,
            self._trainer.tokens,
            self._trainer.ages,
            self._trainer.recycled,
            self._agents.cancelled,
            self._agents.drawn / max(1, self._agents.begun),
            self._view,
            agenda.now_s,
            self._agents.overdue_tokens,
            vain,
            self._agents.places.wanted,
            self._agents.places.until(agenda.now_s),
        )

    def _begin(self) -> None:
        self.append(r.SchedulerClaimed(epoch=1, scheduler="simulated", at_ms=0))
        self.append(published(self._rules.settings.run.policy, 0, 0))
        heard = self._view.fleet
        for name, worker in self._cluster.workers.items():
            for process in worker.tags:
                heard = fleet.apply(heard, _heartbeat(name, process, worker), 0)
        self._view = replace(self._view, fleet=heard)

    def _answered(self, turn: SimulatedTurn) -> None:
        self._agents.answered(turn)
        self._fleet.load_due()

    def _decide(self) -> None:
        # As in the process: decide again until nothing follows from the records just written.
        self._changed = True
        while self._changed:
            self._changed = False
            tasks = []
            for _, record in decide(self._view, self._rules, self._agenda.now_ms):
                if isinstance(record, r.Task):
                    tasks.append(record)
                elif not isinstance(record, r.WorkerAssignment):
                    self.append(record)
            self._issue(tasks)

    def _issue(self, tasks: list[r.Task]) -> None:
        if not tasks:
            return
        self._view = self._view.with_issued(tasks)
        for task in tasks:
            if self._batches is None:
                self._agents.play(task)
            else:
                self._batches.hold(task)
        self._play()

    def _play(self) -> None:
        """Begin the sessions that were held back until their batch."""
        for task in self._batches.released() if self._batches is not None else ():
            self._agents.play(task)


def simulated_rules(settings: SchedulerSettings, slots: int) -> Rules:
    """Return rules with made-up tasks and workers that are never lost."""
    section = settings.scheduler
    limits = section.model_copy(update={"heartbeat_timeout_s": LONGEST_S})
    rows = tuple(TaskRow(f"task-{number}", b"{}", {}) for number in range(TASKS))
    # Only a scheduler with a task file admits groups.
    made_up = {"tasks": Path("simulated"), "sources": {}, "forks": None}
    pacing = settings.pacing.model_copy(update=made_up)
    return Rules(
        settings.model_copy(update={"scheduler": limits, "pacing": pacing}),
        registry.named(section.policy, section.functions),
        TaskSets(listed(rows)),
        slots,
    )


def _heartbeat(name: str, process: str, worker: ModelledWorker) -> r.WorkerHeartbeat:
    return r.WorkerHeartbeat(
        worker=name,
        incarnation=name,
        process=process,
        tags=worker.tags,
        role="none",
        assignment=-1,
        state="ready",
        hardware=worker.hardware,
        devices=tuple(range(worker.devices)),
        at_ms=0,
    )
