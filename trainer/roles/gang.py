"""The gang as the log shows it: its members, and the loss of a member. Also its processes' errors.

A pure fold of `control`. The trainer keeps one. So does each rank, if the gang has several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(slots=True)
class GangWatch:
    """The newest gang."""

    epoch: int = -1
    """The newest scheduler's epoch in the records read."""
    policy: str = ""
    """Policy that the gang trains; empty for any."""
    members: Mapping[str, str] = field(default_factory=dict)
    """Incarnations of the newest gang's training processes, by worker."""
    gang_epoch: int = 0
    met: Mapping[str, str] = field(default_factory=dict)
    """Incarnations of the training processes that this one has met, by worker. They break like a
    gang even before an assignment makes them one. Empty for the trainer, which has met none."""
    broken_by: str = ""
    """The gang's worker whose training process was lost; empty if none was."""

    def apply(self, record: Record) -> None:
        """Fold one record of `control`."""
        match record:
            case r.SchedulerClaimed():
                self.epoch = max(self.epoch, record.epoch)
            case r.RoleAssigned() if record.role == "train" and record.epoch >= self.epoch:
                if not self.concerns(record.policy):
                    return
                if record.gang_epoch > self.gang_epoch:
                    self.members = {}
                    self.gang_epoch = record.gang_epoch
                if record.gang_epoch == self.gang_epoch:
                    self.members = {**self.members, record.worker: record.incarnation}
            case r.RunFinished() if self.concerns(record.policy):
                self.members = self.met = {}  # each ends in order from now on
            case r.WorkerLost() if record.process == "train" and record.epoch >= self.epoch:
                # The loss of the process's earlier life broke an earlier gang.
                if {**self.members, **self.met}.get(record.worker) == record.incarnation:
                    self.broken_by = record.worker
            case r.WorkerJoined() if record.process == "train" and record.epoch >= self.epoch:
                # The scheduler never saw the life that was met: the next one came too soon.
                if self.met.get(record.worker, record.incarnation) != record.incarnation:
                    self.broken_by = record.worker

    def concerns(self, policy: str) -> bool:
        """Return whether a record's policy is the gang's; earlier releases named none."""
        return not self.policy or policy in ("", self.policy)

    def counts(self, started: r.StepStarted) -> bool:
        """Return whether a `StepStarted` that is read now counts; a later claim leaves it valid."""
        return started.epoch >= self.epoch and self.concerns(started.policy)

    def may_start(self, started: r.StepStarted, step: int) -> bool:
        """Return whether a `StepStarted` that counted is for `step` and the newest gang."""
        return started.step == step and started.gang_epoch == self.gang_epoch

    def check(self, ranks: int, started: r.StepStarted | None = None) -> None:
        """Raise `GangBroken`, or `GangMismatch` if `started` names a gang without `ranks` devices.

        The log never breaks a gang with one rank. If its process lives, it goes on under a new
        incarnation; else its connection ends.
        """
        if ranks > 1 and self.broken_by:
            raise GangBroken(self.broken_by)
        if started is not None and (devices := started.devices or len(started.workers)) != ranks:
            raise GangMismatch(started.workers, devices, ranks)


class GangBroken(SeamlessFlowError):
    """A rank's loss. Other ranks and trainer cannot go on without it: all start again."""

    lasting = False

    def __init__(self, worker: str, reason: str = "") -> None:
        self.worker = worker
        self.reason = reason
        text = f"the training process of worker {worker} was lost; all ranks start again"
        super().__init__(f"{text}: {reason}" if reason else text)


class TrainerGone(SeamlessFlowError):
    """The trainer's loss. The ranks' weights belong to no run now, so the ranks restart."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the trainer of this gang was lost: {reason}")


class GangMismatch(SeamlessFlowError):
    """A gang whose device count is not `trainer.ranks`."""

    lasting = True

    def __init__(self, workers: Sequence[str], devices: int, ranks: int) -> None:
        self.workers = tuple(workers)
        self.devices = devices
        self.ranks = ranks
        super().__init__(
            f"the gang is {', '.join(self.workers)}: {devices} devices, trainer.ranks is {ranks}: "
            "set scheduler.gang_size and trainer.ranks to the number of devices that can train"
        )


class AnotherTrainer(SeamlessFlowError):
    """A second leader on this log; this one may have been suspended and replaced."""

    lasting = True

    def __init__(self, lineage: str, mine: str) -> None:
        self.lineage = lineage
        self.mine = mine
        super().__init__(
            f"a step of lineage {lineage} was committed, this process's is {mine}: only one "
            "trainer trains a policy on a topic_prefix"
        )
