"""Where training stands: batches that wait, the gang that trains, steps done, versions.

A pure fold over `control`. Called by `scheduler/state/state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas import records as r
from schemas.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that the trainer has ready and that is in no completed step."""

    ready_ms: int
    started_epoch: int = 0
    """Gang epoch it was started under; 0 while it was not."""
    started_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The newest named set of workers that was assigned together."""

    epoch: int = 0
    members: Mapping[str, int] = field(default_factory=dict)
    """Assignment of each worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The trainer's progress."""

    batches: Mapping[int, Batch] = field(default_factory=dict)
    """By step."""
    gang: Gang = field(default_factory=Gang)
    committed: int = 0
    """Optimizer steps whose groups are fixed; a resume re-executes steps but never lowers it."""
    completed: int = 0
    """One more than the last step that was completed or left out."""
    ended_ms: int = 0
    """When that was."""
    version: int | None = None
    """Policy version published last."""

    @property
    def waiting(self) -> tuple[int, Batch] | None:
        """The batch that is to be trained next or is being trained."""
        step = min(self.batches, default=None)
        return None if step is None else (step, self.batches[step])

    @property
    def under_way(self) -> bool:
        """Whether the newest gang is training."""
        waiting = self.waiting
        return waiting is not None and waiting[1].started_epoch == self.gang.epoch > 0


def apply(steps: Steps, record: Record) -> Steps:
    """Where training stands after a record of `control`."""
    match record:
        case r.BatchReady():
            # A trainer that resumed announces later steps anew when it gets there.
            kept = {step: batch for step, batch in steps.batches.items() if step < record.step}
            return replace(steps, batches={**kept, record.step: Batch(ready_ms=record.at_ms)})
        case r.RoleAssigned() if record.gang_epoch > 0:
            return replace(steps, gang=_joined(steps.gang, record))
        case r.StepStarted() if record.step in steps.batches:
            batch = replace(
                steps.batches[record.step],
                started_epoch=record.gang_epoch,
                started_ms=record.at_ms,
            )
            return replace(steps, batches={**steps.batches, record.step: batch})
        case r.StepCommitted():
            return replace(steps, committed=max(steps.committed, record.step + 1))
        case r.StepCompleted() | r.StepSkipped():
            return _over(steps, record.step, record.at_ms)
        case r.WeightsPublished():
            return replace(steps, version=record.version)
    return steps


def _joined(gang: Gang, record: r.RoleAssigned) -> Gang:
    if record.gang_epoch < gang.epoch:
        return gang
    before = gang.members if record.gang_epoch == gang.epoch else {}
    return Gang(epoch=record.gang_epoch, members={**before, record.worker: record.assignment})


def _over(steps: Steps, step: int, at_ms: int) -> Steps:
    return replace(
        steps,
        batches={number: batch for number, batch in steps.batches.items() if number > step},
        committed=max(steps.committed, step + 1),
        completed=step + 1,
        ended_ms=at_ms,
    )
