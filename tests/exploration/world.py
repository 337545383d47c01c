"""A world: the logs of `control` and `fleet`, and all participants, at one moment.

Of the logs it keeps what participants have not read, the fold behind the last record and what
compaction keeps. Transitions (`changes`) change a copy.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.scheduler.state import state as fold
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import fleet_key
from tests.exploration import canon
from tests.exploration.actors import Letter, Log, RolloutActor, SchedulerActor, TrainerActor
from tests.exploration.bounds import Bounds
from tests.exploration.canon import Collector, Form
from tests.exploration.rank_roles import RankRoles


class Broken(AssertionError):
    """A property that does not hold."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The trainer: the step it is at, and whether its batch is announced."""

    step: int = 0
    announced: bool = False
    alive: bool = True
    lost: bool = False
    """True if a training process that was connected to it has ended."""


@dataclass(slots=True, eq=False, kw_only=True)
class World:
    """One state of the exploration. Its participants are immutable; `copied` shares them."""

    bounds: Bounds
    left: Bounds
    """Faults that may still happen."""
    clock: int = 0
    rollouts: dict[str, RolloutActor] = field(default_factory=dict)
    trainers: dict[str, TrainerActor] = field(default_factory=dict)
    fresh: dict[str, tuple[RankRoles, Form]] = field(default_factory=dict)
    """The roles that a trainer process has after it read all of `control`, and
    their form."""
    rollout_roles: type[RolloutRoles] = RolloutRoles
    newcomers: dict[str, RolloutRoles] = field(default_factory=dict)
    """The roles that a rollout process has after it read `fleet` as compaction left it."""
    schedulers: tuple[SchedulerActor, ...] = ()
    log: Log = field(default_factory=lambda: Log.with_form(State()))
    compacted: dict[str, Record] = field(default_factory=dict)
    """The newest record of `fleet` for each key."""
    leader: Leader = Leader()

    def copied(self) -> "World":
        """Return a world that may be changed."""
        return replace(
            self,
            rollouts=dict(self.rollouts),
            trainers=dict(self.trainers),
            fresh=dict(self.fresh),
            newcomers=dict(self.newcomers),
            compacted=dict(self.compacted),
        )

    def key(self) -> int:
        """Return the hash of all that the future depends on."""
        head = Collector([self.left, self.leader, len(self.schedulers), self.snapshot_epoch])
        forms = [head.form(), self.log.form, *(form for _, form in self.fresh.values())]
        forms += [rollout.form for rollout in self.rollouts.values()]
        forms += [trainer.form for trainer in self.trainers.values()]
        forms += [scheduler.form for scheduler in self.schedulers]
        forms += [canon.of_shared(roles) for roles in self.newcomers.values()]
        # In which order compaction leaves heartbeats is only of concern to those that start.
        beats = sorted(key for key in self.compacted if key.startswith("WorkerHeartbeat"))
        forms += [canon.of_shared(self.compacted[key]) for key in beats]
        return canon.canonical(self.clock, forms)

    @property
    def snapshot_epoch(self) -> int:
        """Epoch of the scheduler that stored its state last, -1 before the first."""
        snapshot = self.compacted.get("SchedulerSnapshot")
        return snapshot.epoch if isinstance(snapshot, r.SchedulerSnapshot) else -1

    def join(self, name: str) -> None:
        """Let what a rollout process that starts now reads of `fleet` be known."""
        roles = self.rollout_roles(name, f"{name}-next", policy="policy", loads_asleep=True)
        actor = RolloutActor(worker=name, roles=replace(roles))
        for record in self.compacted.values():
            if of_rollout(record, actor):
                roles.apply(record)
        self.newcomers[name] = roles

    def tick(self) -> int:
        """Let a millisecond pass; return the time."""
        self.clock += 1
        return self.clock

    def to_control(self, record: Record, writer: str) -> None:
        """Append to `control`."""
        before = self.log.state
        self.log = Log.with_form(fold.apply(before, record), record)
        letter = Letter(record, writer, self.log, before.epoch)
        self.schedulers = tuple(
            replace(scheduler, control=(*scheduler.control, letter))
            for scheduler in self.schedulers
        )
        for name, rollout in self.rollouts.items():
            if rollout.roles is not None and of_rollout(record, rollout):
                self.rollouts[name] = rollout.with_changes(control=(*rollout.control, letter))
        for name, trainer in self.trainers.items():
            if not of_trainer(record, name):
                continue
            if not isinstance(record, r.StepStarted):
                roles = copied_roles(self.fresh[name][0])
                roles.apply(record)
                roles.gang.broken_by = ""
                self.fresh[name] = (roles, canon.form_of(roles))
            if trainer.roles is not None:
                self.trainers[name] = trainer.with_changes(control=(*trainer.control, letter))

    def to_fleet(self, record: Record, writer: str) -> None:
        """Append to `fleet`."""
        key = fleet_key(record)
        self.compacted.pop(key, None)
        self.compacted[key] = record
        for name in self.newcomers:
            self.join(name)
        letter = Letter(record, writer, self.log, self.log.state.epoch)
        if isinstance(record, r.WorkerHeartbeat):
            self.schedulers = tuple(
                replace(scheduler, unread_fleet=(*scheduler.unread_fleet, letter))
                if scheduler.lacks(record)
                else scheduler
                for scheduler in self.schedulers
            )
        for name, rollout in self.rollouts.items():
            if rollout.roles is not None and of_rollout(record, rollout):
                self.rollouts[name] = rollout.with_changes(fleet=(*rollout.fleet, letter))


def of_rollout(record: Record, process: RolloutActor) -> bool:
    """Return True if the record may change something in a rollout process."""
    roles = process.roles
    match record:
        case r.SchedulerClaimed():
            return True
        case r.SchedulerSnapshot():
            return roles is None or record.epoch > roles.epoch
        case r.WorkerAssignment(worker=process.worker):
            return roles is None or record.epoch > roles.epoch
        case r.WorkerHeartbeat(worker=process.worker):
            mine = roles is not None and record.incarnation == roles.incarnation
            return record.process == "train" or (mine and roles is not None and not roles.joined)
        case r.RoleAcquired() | r.RoleReleased():
            return record.worker == process.worker and record.role == "train"
        case r.RoleAssigned() | r.WorkerLost() | r.AssignmentTimedOut():
            return record.worker == process.worker
        case r.WeightsPublished() | r.PolicyWeights():
            return True
    return False


def of_trainer(record: Record, worker: str) -> bool:
    """Return True if the record may change something in the worker's trainer process."""
    match record:
        case r.SchedulerClaimed():
            return True
        case r.RoleAssigned():
            return record.worker == worker or record.role == "train"
        case r.WorkerLost():
            return record.worker == worker or record.process == "train"
        case r.RoleAcquired() | r.RoleReleased():
            return record.worker == worker and record.role == "rollout"
        case r.AssignmentTimedOut():
            return record.worker == worker
        case r.StepStarted():
            return worker in record.workers
    return False


def copied_roles(roles: RankRoles) -> RankRoles:
    """Return roles that may be changed."""
    return roles.copied()


def heartbeats(world: World) -> Iterable[r.WorkerHeartbeat]:
    """Yield the newest heartbeats."""
    for record in world.compacted.values():
        if isinstance(record, r.WorkerHeartbeat):
            yield record
