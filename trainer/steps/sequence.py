"""The optimizer steps of a run, in order: announce a batch, train it once the scheduler starts it.

Holds where training stands. Called by the loop while no other work is under way.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas import records as r
from schemas.records import Record
from trainer.data.batch import Batch, facts
from trainer.data.staleness import StepClock
from trainer.recovery.checkpoint import Checkpoint
from trainer.recovery.resume import Origin, Resume
from trainer.roles.gang_errors import AnotherTrainer
from trainer.roles.process import TrainerProcess
from trainer.steps.dataloader import Dataloader, SkippedStep
from trainer.steps.one_step import StepDone, StepOrder, StepRunner
from trainer.steps.reports import Reports, evaluation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announced:
    """A batch that waits for the scheduler to start its step."""

    batch: Batch
    facts: Mapping[str, float]
    ready_ms: int


@dataclass(eq=False)
class StepSequence:
    """The steps of a run, from where this process resumes it."""

    _process: TrainerProcess
    _checkpoint: Checkpoint
    """The checkpoint that this process began with; the loop keeps its control state up to date."""
    _resume: Resume
    _dataloader: Dataloader
    _runner: StepRunner
    _reports: Reports
    _announced: Announced | None = None
    _started: r.StepStarted | None = None
    _evaluated: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._control_state = self._checkpoint.control_state
        self.origin = self._resume.origin
        """The weights in memory."""
        self._next_version = self._resume.next_version
        self._saved = self.origin
        self._process.status.version = self.origin.version

    @property
    def all_done(self) -> bool:
        """Return whether no step is left."""
        return self.origin.step >= self._process.settings.run.steps

    def apply(self, record: Record) -> None:
        """Apply a record of `control`. Raise `AnotherTrainer`."""
        own = self._resume.lineage
        match record:
            case r.StepStarted():
                self._started = record
            case r.StepCommitted() if record.lineage != own:
                self._runner.fence()
                raise AnotherTrainer(record.lineage, own)

    def advance(self) -> None:
        """Announce the next batch if it is complete; begin its step if the scheduler started it."""
        self._evaluated |= evaluation(self._dataloader.evaluated())
        if self._announced is None and not self.all_done:
            self._offer()
        announced, started = self._announced, self._started
        if announced is None or started is None:
            return
        if self._process.roles.may_start(started, announced.batch.step):
            self._process.check_gang(started)
            self._begin(announced)

    def finish(self) -> None:
        """Wait for work under way, report the end of the run if it is reached, and save.

        A gang does not save here, because its other ranks may have ended: what it has not saved it
        executes again.
        """
        process = self._process
        self._runner.end_soon()
        process.work.finish()
        if self.all_done and self._control_state.finished < self.origin.step:
            at_ms, steps = process.now_ms(), self.origin.step
            process.send(r.RunFinished(at_ms=at_ms, steps=steps, reason="all steps are done"))
        if self._saved.step != self.origin.step and process.settings.trainer.ranks == 1:
            self._save()
            process.work.finish()

    def _offer(self) -> None:
        """Announce the batch of the next step, or skip the step, or wait for more groups."""
        process, step, now_ms = self._process, self.origin.step, self._process.now_ms()
        found, dropped = self._dataloader.next_batch(step, now_ms)
        process.send(*dropped)
        if isinstance(found, SkippedStep):
            self._skip(step, now_ms)
        elif found is not None:
            known = facts(found, StepClock(self._control_state.steps_of, step))
            self._announced = Announced(found, known, now_ms)
            names = tuple(group.group_id for group in found.members())
            tokens = found.trained()
            process.send(
                r.BatchReady(at_ms=now_ms, step=step, groups=names, trainable_tokens=tokens)
            )

    def _skip(self, step: int, now_ms: int) -> None:
        """Count a step in which nothing is left to train; the weights stay as they are."""
        if step not in self._resume.again:
            self._process.send(r.StepSkipped(at_ms=now_ms, step=step, reason="no_groups"))
        self._process.send(*self._reports.nothing_learned(self._dataloader.drop_metrics(), now_ms))
        self.origin = Origin(step + 1, self.origin.version, self.origin.lineage)
        self._control_state.steps_of[self.origin.version] = step + 1

    def _begin(self, announced: Announced) -> None:
        now_ms = self._process.now_ms()
        waited = {"wait_s": (now_ms - announced.ready_ms) / 1000}
        known = {**announced.facts, **waited, **self._dataloader.drop_metrics(), **self._evaluated}
        order = StepOrder(
            batch=announced.batch,
            facts=known,
            version=self.origin.version,
            next_version=self._next_version,
            lineage=self._resume.lineage,
            parent_lineage=self._resume.origin.lineage,
            # A copy: the loop goes on changing the set while the step runs in its thread.
            consumed=frozenset(self._control_state.consumed),
            started_ms=now_ms,
        )
        self._started, self._evaluated = None, {}
        self._process.enter("training", "training")
        self._process.work.begin(lambda: self._runner.run(order), self._done)

    def _done(self, done: StepDone) -> None:
        process, order = self._process, done.order
        step = order.batch.step + 1
        self._dataloader.consumed(order.batch)
        self._control_state.steps_of[order.next_version] = step
        process.activity.add_tokens(order.batch.trained())
        self.origin = Origin(step, order.next_version, order.lineage)
        self._next_version, self._announced = order.next_version + 1, None
        process.status.version = order.next_version
        process.send(*self._reports.report_step(done))
        if step % process.settings.trainer.checkpoint_every == 0 or self.all_done:
            self._save()
        else:
            self._runner.rest()

    def _save(self) -> None:
        """Begin to write a checkpoint of what is in memory now."""
        process, origin = self._process, self.origin
        self._control_state.settle(origin.step)
        content = Checkpoint(
            origin,
            self._dataloader.low_water(self._checkpoint.first_offsets),
            # A copy: the loop goes on folding `control` while the checkpoint is written.
            copy.deepcopy(self._control_state),
            process.roles.epoch,
            process.roles.rollout_holds,
            self._checkpoint.log,
        )
        process.activity.enter("loading", process.now_ms())

        def saved(directory: Path) -> None:
            self._saved = origin
            self._runner.rest()
            _log.info("checkpoint of step %d: %s", origin.step, directory)

        process.work.begin(lambda: self._runner.save(content), saved)
