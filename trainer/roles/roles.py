"""The role `train` in a worker's training process: which move is due, by `control` and `fleet`.

Pure. `apply` folds the records in order. `due` returns the move to make; `acquired`, `released` and
`rejoined` note that it was made. Only a newer (epoch, assignment) is obeyed, never an older
scheduler's decision. The worker's every assignment concerns this process: an assignment to roll out
takes the role `train` away. The role is taken only once the rollout process has given up its own.
"""

from dataclasses import dataclass
from typing import Literal

from seamlessflow.infra.worker.roles import WorkerRoles
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

Due = Literal["acquire", "release", "rejoin"]
ROLLOUT_SILENT_MS = 15_000
"""A rollout process whose last heartbeat is older than this no longer holds the devices."""


@dataclass(slots=True)
class TrainerRoles(WorkerRoles):
    """A training process's state, as far as it concerns the role."""

    rollout: tuple[int, bool] = (-1, False)
    """The rollout process's last record: its time, and whether the process held the devices
    then."""

    followed: tuple[int, int] = (-1, -1)
    """The newest step that it followed to its end: gang epoch and step number."""

    @property
    def rollout_holds(self) -> bool:
        """Return whether the worker's rollout process holds the devices."""
        return self.rollout[1]

    def apply(self, record: Record) -> None:
        """Fold one record of `control` or `fleet`."""
        match record:
            case r.SchedulerClaimed() | r.SchedulerSnapshot():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAssigned() if record.worker == self.worker:
                self._assign(record)
            case r.AssignmentTimedOut() if self.wanted and record.epoch >= self.epoch:
                if record.assignment == self.wanted.assignment:
                    # No other process gets the device before the release is on `control`.
                    self.wanted = None
                    self.leaving = True
            case r.RoleAcquired() | r.RoleReleased() if record.worker == self.worker:
                if record.role == "rollout":
                    self._note_rollout(record.at_ms, isinstance(record, r.RoleAcquired))
            case r.WorkerLost() if record.worker == self.worker:
                self._lose(record)
            case r.WorkerHeartbeat() if record.worker == self.worker:
                self._heartbeat(record)

    def due(self) -> Due | None:
        """Return the move to make now, or None. Do not call it while work is under way."""
        if self.leaving or (self.held is not None and self.lost):
            return "release"
        if self.lost:
            return "rejoin"
        if self.wanted is not None and (self.held is not None or not self.rollout_holds):
            return "acquire"
        return None

    def acquired(self) -> None:
        """Note that the device was taken."""
        self.held = self.wanted
        self.wanted = None

    def released(self) -> None:
        """Note that the device was given back."""
        self.held = None
        self.leaving = False

    def rejoined(self, incarnation: str) -> None:
        """Go on as a new incarnation, which the scheduler does not know as lost."""
        self.incarnation = incarnation
        self.lost = False
        self.wanted = None

    def counts(self, started: r.StepStarted) -> bool:
        """Return whether a `StepStarted` that is read now counts; a later claim leaves it valid."""
        return started.epoch >= self.epoch

    def may_start(self, started: r.StepStarted) -> bool:
        """Return whether `started` is for the held assignment and its step is not followed yet.

        If the trainer announces a batch again, its step's `StepStarted` is written again to the
        same gang. The process may read that record when the step is over.
        """
        return (
            self.held is not None
            and not self.leaving
            and started.gang_epoch == self.held.gang_epoch
            and self.worker in started.workers
            and (started.gang_epoch, started.step) > self.followed
        )

    def note_over(self, gang_epoch: int, step: int) -> None:
        """Note that a followed step is over, whichever of its starts the process followed."""
        self.followed = max(self.followed, (gang_epoch, step))

    def _assign(self, record: r.RoleAssigned) -> None:
        if not self.is_newer(record):
            return
        # An assignment for an earlier life of this process.
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
            self._note_rollout(record.at_ms, False)
        elif record.incarnation == self.incarnation:
            self.lost = True

    def _heartbeat(self, record: r.WorkerHeartbeat) -> None:
        if record.process == "rollout":
            self._note_rollout(record.at_ms, record.role == "rollout")
        # `fleet` keeps the last heartbeat of a rollout process that was killed.
        elif record.incarnation == self.incarnation and self._silent(record.at_ms):
            self.rollout = (record.at_ms, False)

    def _silent(self, now_ms: int) -> bool:
        return now_ms - self.rollout[0] > ROLLOUT_SILENT_MS

    def _note_rollout(self, at_ms: int, holds: bool) -> None:
        if at_ms >= self.rollout[0]:  # `control` and `fleet` have no common order
            self.rollout = (at_ms, holds)
