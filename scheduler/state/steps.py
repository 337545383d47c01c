"""Training progress: batches that wait, the newest gang, steps done, the newest version.

A pure fold over `control`. Called by `scheduler/state/state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyBatch:
    """A batch that the trainer announced and that is in no completed step."""

    ready_ms: int
    started_epoch: int = 0
    """Gang epoch under which its step was started; 0 before the start."""
    started_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The workers that were last assigned to train together."""

    epoch: int = 0
    members: Mapping[str, int] = field(default_factory=dict)
    """Assignment number by worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """The batches, steps and versions of the trainer so far, and the gang."""

    batches: Mapping[int, ReadyBatch] = field(default_factory=dict)
    """Batches that wait or are being trained, by step."""
    gang: Gang = field(default_factory=Gang)
    committed: int = 0
    """Optimizer steps whose groups are fixed; a resume repeats steps but never lowers it."""
    completed: int = 0
    """The last completed or skipped step, plus one."""
    ended_ms: int = 0
    """When that step ended."""
    trained: int = 0
    """Optimizer steps that made the newest version, without skipped ones."""
    evaluated: Mapping[str, int] = field(default_factory=dict)
    """`trained` at the newest version whose evaluation began, by split."""
    skipped: frozenset[int] = frozenset()
    """Skipped steps, which do not count towards the run's length."""
    version: int | None = None
    """Policy version published last."""

    @property
    def waiting(self) -> tuple[int, ReadyBatch] | None:
        """Step and batch to train next or in training, or None if no batch is ready."""
        step = min(self.batches, default=None)
        return None if step is None else (step, self.batches[step])

    @property
    def under_way(self) -> bool:
        """True while the newest gang trains."""
        waiting = self.waiting
        return waiting is not None and waiting[1].started_epoch == self.gang.epoch > 0


def publish_ms(completed: r.StepCompleted) -> int:
    """Return how long a step's weights were written, at its end."""
    return round(1000 * completed.metrics.get("publish_s", 0.0))


def apply(steps: TrainingProgress, record: Record) -> TrainingProgress:
    """Return the progress after a `control` record."""
    match record:
        case r.BatchReady():
            # A trainer that resumed from a checkpoint announces the later steps anew.
            kept = {step: batch for step, batch in steps.batches.items() if step < record.step}
            return replace(steps, batches={**kept, record.step: ReadyBatch(ready_ms=record.at_ms)})
        case r.RoleAssigned() if record.gang_epoch > 0:
            return replace(steps, gang=_gang_with(steps.gang, record))
        case r.StepStarted() if record.step in steps.batches:
            batch = replace(
                steps.batches[record.step], started_epoch=record.gang_epoch, started_ms=record.at_ms
            )
            return replace(steps, batches={**steps.batches, record.step: batch})
        case r.StepCommitted():
            # A resumed trainer commits earlier steps again.
            return replace(steps, committed=max(steps.committed, record.step + 1))
        case r.StepCompleted():
            return _step_ended(steps, record.step, record.at_ms)
        case r.StepSkipped():
            ended = _step_ended(steps, record.step, record.at_ms)
            return replace(ended, skipped=steps.skipped | {record.step})
        case r.WeightsPublished():
            skipped = sum(step < record.step for step in steps.skipped)
            return replace(steps, version=record.version, trained=record.step - skipped)
        case r.GroupAdmitted(purpose="eval") if record.version == steps.version:
            newest = max(steps.evaluated.get(record.split, -1), steps.trained)
            return replace(steps, evaluated={**steps.evaluated, record.split: newest})
    return steps


def _gang_with(gang: Gang, record: r.RoleAssigned) -> Gang:
    if record.gang_epoch < gang.epoch:
        return gang
    before = gang.members if record.gang_epoch == gang.epoch else {}
    return Gang(epoch=record.gang_epoch, members={**before, record.worker: record.assignment})


def _step_ended(steps: TrainingProgress, step: int, at_ms: int) -> TrainingProgress:
    return replace(
        steps,
        batches={number: batch for number, batch in steps.batches.items() if number > step},
        committed=max(steps.committed, step + 1),
        completed=step + 1,
        ended_ms=at_ms,
    )
