"""When the trainer process of a worker takes and gives up the role `train`. Pure.

Fed with the records of `control` in order; `wanted_step` says what is due, and `acquired`,
`released` and `rejoined` say that it was done. Rules of `docs/architecture.md`: only a newer
(epoch, assignment) is obeyed, never a decision of an older scheduler; any assignment of the worker
concerns this process; the role waits until the worker's rollout process has given up its own.
"""

from dataclasses import dataclass, field
from typing import Literal

from infra.worker.roles import WorkerRoles
from schemas import records as r
from schemas.records import Record

Due = Literal["acquire", "release", "rejoin"]


@dataclass(slots=True)
class TrainerRoles(WorkerRoles):
    """State of a worker's trainer process."""

    rollout_holds: bool = False
    """Whether the worker's rollout process has the device."""
    gang: dict[str, str] = field(default_factory=dict)
    """Incarnations of all trainer processes of the newest gang, by worker."""
    gang_epoch: int = 0
    broken_by: str = ""
    """A worker of the gang whose process was lost."""

    def apply(self, record: Record) -> None:
        """Takes in one record."""
        self._follow_gang(record)
        match record:
            case r.SchedulerClaimed():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAssigned() if record.worker == self.worker:
                self._assign(record)
            case r.AssignmentTimedOut() if self.wanted is not None:
                if record.assignment == self.wanted.assignment:
                    self.wanted = None
            case r.RoleAcquired() | r.RoleReleased() if record.worker == self.worker:
                if record.role == "rollout":
                    self.rollout_holds = isinstance(record, r.RoleAcquired)
            case r.WorkerLost() if record.worker == self.worker:
                self._lose(record)

    def due(self) -> Due | None:
        """What is to be done now, if it can be; never while a step is under way."""
        if self.held is not None and (self.leaving or self.lost):
            return "release"
        if self.lost:
            return "rejoin"
        if self.wanted is not None and (self.held is not None or not self.rollout_holds):
            return "acquire"
        return None

    def acquired(self) -> None:
        """The device is taken."""
        self.held, self.wanted = self.wanted, None

    def released(self) -> None:
        """The device is given back."""
        self.held, self.leaving = None, False

    def rejoined(self, incarnation: str) -> None:
        """The process goes on as a new incarnation."""
        self.incarnation, self.lost, self.wanted = incarnation, False, None

    def may_start(self, started: r.StepStarted, step: int) -> bool:
        """Whether a `StepStarted` is for the assignment held and for this step."""
        return (
            self.held is not None
            and not self.leaving
            and started.epoch >= self.epoch
            and started.step == step
            and started.gang_epoch == self.held.gang_epoch
            and self.worker in started.workers
        )

    def _assign(self, record: r.RoleAssigned) -> None:
        if not self.is_newer(record):
            return
        if record.role == "train" and record.incarnation != self.incarnation:
            return
        self.obey(record)
        training = record.role == "train"
        self.wanted = record if training else None
        self.leaving = self.held is not None and not training

    def _lose(self, record: r.WorkerLost) -> None:
        if record.epoch < self.epoch:
            return
        if record.process == "rollout":
            self.rollout_holds = False
        elif record.incarnation == self.incarnation:
            self.lost = True

    def _follow_gang(self, record: Record) -> None:
        match record:
            case r.RoleAssigned() if record.role == "train" and record.epoch >= self.epoch:
                if record.gang_epoch > self.gang_epoch:
                    self.gang, self.gang_epoch = {}, record.gang_epoch
                if record.gang_epoch == self.gang_epoch:
                    self.gang[record.worker] = record.incarnation
            case r.WorkerLost() if record.process == "train" and record.worker != self.worker:
                if self.gang.get(record.worker) == record.incarnation:
                    self.broken_by = record.worker
