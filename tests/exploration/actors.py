"""The participants of a world, each an immutable value around the project's own state.

A rollout and a trainer process hold their roles, what they have not read yet, and what their device
does. A scheduler holds its two folds. `form` is what their future depends on.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import Record, StepStarted, WorkerHeartbeat
from tests.exploration import canon
from tests.exploration.canon import Collector, Form
from tests.exploration.rank_roles import RankRoles


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """A record on its topic: its writer, and for `control` the fold of the log behind it."""

    record: Record
    writer: str
    behind: "Log"
    """The fold of `control` behind this record."""
    epoch: int
    """Newest epoch claimed before it."""

    @property
    def form(self) -> Form:
        """Return the form of the record."""
        return canon.of_shared(self.record)


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """A fold of `control`, with its form."""

    state: State
    form: Form
    started: StepStarted | None = None
    """The last record, if it starts a step and counts."""

    @classmethod
    def with_form(cls, state: State, record: Record | None = None) -> Self:
        """Return the fold with its form."""
        started = record if isinstance(record, StepStarted) else None
        counts = started is not None and started.epoch == state.epoch
        return cls(state, canon.form_of(state), started if counts else None)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Process:
    """A process of a worker: `lives` counts its incarnations."""

    kind: ClassVar[str]
    worker: str
    lives: int = 0
    control: tuple[Letter, ...] = ()
    """Records of `control` that concern it and that it has not read."""
    fleet: tuple[Letter, ...] = ()
    memory: bool = False
    """True while it has the device's memory, or is taking or freeing it."""
    doubted: bool = False
    """True if it was silent for so long that the scheduler counts it as lost, though it lives."""
    read_form: Form = field(init=False)
    """The form without what it has not read."""
    form: Form = field(init=False)

    @property
    def incarnation(self) -> str:
        """Name of its newest life."""
        return f"{self.worker}-{self.kind}-{self.lives}"

    def __post_init__(self) -> None:
        collector = Collector([self.memory, self.doubted])
        collector.life(self.incarnation)
        self._add_own(collector)
        object.__setattr__(self, "read_form", collector.form())
        collector = Collector()
        collector.join(self.read_form)
        for unread in (self.control, self.fleet):
            collector.add(len(unread))
            collector.join(*(letter.form for letter in unread))
        object.__setattr__(self, "form", collector.form())

    def _add_own(self, collector: Collector) -> None:
        """Add what only this kind of process has."""

    def with_changes(self, **changes: object) -> Self:
        """Return the process after the changes."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RolloutActor(Process):
    """A rollout process; without roles while it is dead."""

    kind = "rollout"
    roles: RolloutRoles | None

    def _add_own(self, collector: Collector) -> None:
        _add_roles(collector, self.roles)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainerActor(Process):
    """A trainer process; without roles while it is dead."""

    kind = "train"
    roles: RankRoles | None
    move: tuple[str, int] | None = None
    """`acquire` or `release` under way, with the assignment that it began with."""
    started: StepStarted | None = None
    """The newest start of a step that it has not followed."""
    training: StepStarted | None = None
    orphaned: bool = False
    """True if the trainer that it was connected to has ended, which it may not have noticed."""

    @property
    def idle(self) -> bool:
        """True if no work is under way."""
        return self.move is None and self.training is None

    def _add_own(self, collector: Collector) -> None:
        _add_roles(collector, self.roles)
        collector.add(self.orphaned)
        for start in (self.started, self.training):
            collector.value(start)
        if self.move is not None:
            collector.add(self.move[0])
            collector.number(self.move[1])


def _add_roles(collector: Collector, roles: RolloutRoles | RankRoles | None) -> None:
    collector.add(roles is None)
    if roles is not None:
        collector.join(canon.of_shared(roles))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SchedulerActor:
    """A scheduler that has claimed an epoch."""

    name: str
    epoch: int
    log: Log
    fleet: Fleet
    control: tuple[Letter, ...] = ()
    unread_fleet: tuple[Letter, ...] = ()
    form: Form = field(init=False)

    def __post_init__(self) -> None:
        collector = Collector([self.epoch, len(self.control), len(self.unread_fleet)])
        collector.join(self.log.form)
        for key, latest in sorted(self.fleet.heartbeats.items()):
            collector.add(*key, latest.seen_ms < 0)
            # The life before it is told apart only from late heartbeats, and those are in order.
            collector.life(latest.heartbeat.incarnation)
        for letter in (*self.control, *self.unread_fleet):
            collector.join(letter.form)
            collector.add(letter.writer == self.name)
        object.__setattr__(self, "form", collector.form())

    @property
    def complete(self) -> bool:
        """True if it has read back all that it wrote."""
        return all(letter.writer != self.name for letter in self.control)

    def lacks(self, heartbeat: WorkerHeartbeat) -> bool:
        """Return True if the heartbeat is not only one more of a process that it hears."""
        latest = self.fleet.heartbeats.get((heartbeat.worker, heartbeat.process))
        same_life = latest is not None and latest.heartbeat.incarnation == heartbeat.incarnation
        return (
            not same_life or bool(self.unread_fleet) or (latest is not None and latest.seen_ms < 0)
        )
