"""A simulation's workers: they take the assigned roles, load weights and train.

A role change has two halves, as in a real worker. First the process that has the old role leaves
the devices. Then the other process takes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from seamlessflow.infra.device_model.rates import GangStep
from seamlessflow.infra.worker.activity import Activity, ActivityAccount
from seamlessflow.infra.worker.updates import UpdateLine, UpdateRule
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.cluster import ModelledCluster, ModelledWorker
from seamlessflow.lab.simulation.engine import SimulatedEngine, SimulatedTurn
from seamlessflow.lab.simulation.router import Router
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.scheduler.state.workers import NO_ROLE
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

ROLLOUT = "rollout"
TRAIN = "train"


class ControlLog(Protocol):
    """The `Simulation` method that its workers and its trainer use."""

    def append(self, record: Record) -> None:
        """Append a record to `control`."""


@dataclass(eq=False)
class SimulatedWorker:
    """A worker: its role, its engine, and what its processes did since their last reports."""

    name: str
    model: ModelledWorker
    engine: SimulatedEngine
    rollout: ActivityAccount
    train: ActivityAccount
    role: str = NO_ROLE
    assignment: int = -1
    loading: bool = False
    reported: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The engine's tokens, full-batch time and recomputing time at the last report."""

    def account(self, role: str) -> ActivityAccount:
        """Return the account for the process that serves the role."""
        return self.rollout if role == ROLLOUT else self.train


class SimulatedFleet:
    """All workers."""

    def __init__(
        self,
        cluster: ModelledCluster,
        agenda: Agenda,
        router: Router,
        control: ControlLog,
        on_turn: Callable[[SimulatedTurn], None],
        run: RunSection,
    ) -> None:
        self._agenda = agenda
        self._router = router
        self._control = control
        self._policy = run.policy
        self._version = 0
        self._behind = False
        """True if a worker that rolls out lacks the newest weights."""
        self._rule = UpdateRule(cluster.update, run.lag, UpdateLine(run.policy))
        self.workers = {
            name: self._worker(name, model, on_turn) for name, model in cluster.workers.items()
        }

    def assign(self, assigned: r.RoleAssigned) -> None:
        """Let the worker leave its role, if it has one, and take the assigned one."""
        worker = self.workers[assigned.worker]
        left = worker.role
        worker.role = NO_ROLE
        worker.assignment = assigned.assignment
        worker.loading = False
        if left == NO_ROLE:
            self._take(worker, assigned)
            return
        if left == assigned.role:  # in another gang than before
            self._agenda.after(0, self._taken, worker, assigned, 0.0)
            return
        turns: Sequence[SimulatedTurn] = ()
        if left == ROLLOUT:
            self._router.remove(worker.engine)
            turns = worker.engine.drain()
        worker.account(left).enter("loading", self._agenda.now_ms)
        leave_s = worker.model.rates.releasing(left)
        self._agenda.after(leave_s, self._left, worker, assigned, left, len(turns))
        for turn in turns:
            self._router.submit(turn)

    def publish(self, version: int) -> None:
        """Let the workers that roll out load new weights."""
        self._version = self._router.newest = version
        self._behind = True
        self.load_due()

    def note(self, record: Record) -> None:
        """Note a `control` record, if workers load one after another."""
        if self._rule.settings.mode == "rolling":
            self._rule.line.apply(record)

    def load_due(self) -> None:
        """Let workers that lack the newest weights load them, if they may load now."""
        if not self._behind:
            return
        for worker in self.workers.values():
            if worker.role == ROLLOUT and not worker.loading and self._may_load(worker):
                self._load(worker)
        self._behind = any(
            worker.role == ROLLOUT and worker.engine.version != self._version
            for worker in self.workers.values()
        )

    def train(self, step: GangStep, took_s: float, done: Callable[[], None]) -> None:
        """Let a gang train for `took_s`, then call `done`.

        All members but the slowest wait after their own parts.
        """
        slowest_s = step.slowest_s
        for name, part_s in step.parts_s.items():
            self.workers[name].train.enter("training", self._agenda.now_ms)
            if part_s < slowest_s:
                self._agenda.after(part_s, self._wait, name)
        self._agenda.after(took_s, self._trained, list(step.parts_s), done)

    def add_trained(self, names: Sequence[str], tokens: float) -> None:
        """Count a gang's trained tokens, an equal part for each worker."""
        for name in names:
            self.workers[name].train.add_tokens(round(tokens / len(names)))

    def report(self) -> list[r.WorkerUsage]:
        """Return what the processes did since their last reports."""
        reports = []
        for worker in self.workers.values():
            usage = self._usage(worker)
            trained = worker.train.report(worker.name, self._agenda.now_ms)
            reports += [report for report in (usage, trained) if report is not None]
        return reports

    def _may_load(self, worker: SimulatedWorker) -> bool:
        engine = worker.engine
        behind = self._version - engine.version
        return behind > 0 and self._rule.may_load(
            worker.name,
            self._version,
            behind,
            idle=engine.load == 0,
            needed=engine.holds,
            now_ms=self._agenda.now_ms,
        )

    def _usage(self, worker: SimulatedWorker) -> r.WorkerUsage | None:
        engine = worker.engine
        engine.settle()
        clock = engine.clock
        now = (clock.tokens, clock.full_batch_s, clock.recomputing_s)
        tokens, full_s, again_s = (new - old for new, old in zip(now, worker.reported, strict=True))
        worker.rollout.add_tokens(round(tokens))
        usage = worker.rollout.report(worker.name, self._agenda.now_ms)
        if usage is None:
            return None
        worker.reported = now
        return replace(
            usage, full_batch_ms=round(1000 * full_s), recomputing_ms=round(1000 * again_s)
        )

    def _worker(
        self, name: str, model: ModelledWorker, on_turn: Callable[[SimulatedTurn], None]
    ) -> SimulatedWorker:
        engine = SimulatedEngine(
            name, model.rates, self._agenda, on_turn, lambda: self._note(self.workers[name])
        )
        return SimulatedWorker(
            name,
            model,
            engine,
            ActivityAccount(name, "rollout", self._agenda.now_ms),
            ActivityAccount(name, "train", self._agenda.now_ms),
        )

    def _note(self, worker: SimulatedWorker) -> None:
        """Count the time from now on as the engine's present activity."""
        activity: Activity = "decoding" if worker.engine.decoding else "idle"
        worker.rollout.enter(activity, self._agenda.now_ms)
        if worker.engine.holds:
            self.load_due()

    def _left(
        self, worker: SimulatedWorker, assigned: r.RoleAssigned, left: str, handed_back: int
    ) -> None:
        worker.account(left).enter("none", self._agenda.now_ms)
        self._control.append(
            r.RoleReleased(
                at_ms=self._agenda.now_ms,
                worker=worker.name,
                incarnation=assigned.incarnation,
                role=left,
                assignment=assigned.assignment,
                free_bytes=0,
                handed_back=handed_back,
                took_ms=round(1000 * worker.model.rates.releasing(left)),
            )
        )
        self._take(worker, assigned)

    def _take(self, worker: SimulatedWorker, assigned: r.RoleAssigned) -> None:
        worker.account(assigned.role).enter("loading", self._agenda.now_ms)
        take_s = worker.model.rates.acquiring(assigned.role)
        self._agenda.after(take_s, self._taken, worker, assigned, take_s)

    def _taken(self, worker: SimulatedWorker, assigned: r.RoleAssigned, took_s: float) -> None:
        if worker.assignment != assigned.assignment:  # assigned anew during the switch
            worker.account(assigned.role).enter("none", self._agenda.now_ms)
            return
        worker.role = assigned.role
        rolls_out = assigned.role == ROLLOUT
        worker.account(assigned.role).enter("idle", self._agenda.now_ms)
        self._control.append(
            r.RoleAcquired(
                at_ms=self._agenda.now_ms,
                worker=worker.name,
                incarnation=assigned.incarnation,
                role=assigned.role,
                assignment=assigned.assignment,
                slot=assigned.slot,
                version=self._version if rolls_out else None,
                took_ms=round(1000 * took_s),
                policy=self._policy if rolls_out else "",
            )
        )
        if rolls_out:
            worker.engine.start(self._version)
            self._router.add(worker.engine)
        self.load_due()

    def _load(self, worker: SimulatedWorker) -> None:
        worker.loading = True
        paused = r.GenerationPaused(
            at_ms=self._agenda.now_ms,
            worker=worker.name,
            incarnation=worker.name,
            mode="keep",
            running=worker.engine.pause(),
            reason="weights",
        )
        worker.rollout.enter("loading", self._agenda.now_ms)
        self._control.append(paused)
        load_s = worker.model.rates.load_s
        self._agenda.after(load_s, self._loaded, worker, worker.assignment, self._version)

    def _loaded(self, worker: SimulatedWorker, assignment: int, version: int) -> None:
        if worker.assignment != assignment:
            return  # it left its role meanwhile
        worker.loading = False
        took_ms = round(1000 * worker.model.rates.load_s)
        at_ms = self._agenda.now_ms
        self._control.append(
            r.WeightsLoaded(
                at_ms=at_ms,
                policy=self._policy,
                version=version,
                worker=worker.name,
                incarnation=worker.name,
                took_ms=took_ms,
            )
        )
        self._control.append(
            r.GenerationResumed(
                at_ms=at_ms,
                worker=worker.name,
                incarnation=worker.name,
                version=version,
                paused_ms=took_ms,
            )
        )
        worker.engine.resume(version)
        self.load_due()

    def _wait(self, name: str) -> None:
        self.workers[name].train.enter("waiting", self._agenda.now_ms)

    def _trained(self, names: Sequence[str], done: Callable[[], None]) -> None:
        for name in names:
            self.workers[name].train.enter("idle", self._agenda.now_ms)
        done()
