"""A run's optimizer steps, in order: announce a batch, train it once the scheduler starts it.

It knows how far training has come. Called by the loop while no other work is under way.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.data.batch import Batch, SkippedStep
from seamlessflow.trainer.data.figures.chances import PassTerms
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.metrics.unlearned import why_barren
from seamlessflow.trainer.recovery.checkpoint import Checkpoint
from seamlessflow.trainer.recovery.resume import Origin, Resume
from seamlessflow.trainer.roles.gang import AnotherTrainer
from seamlessflow.trainer.roles.parts import ProcessParts, Work
from seamlessflow.trainer.step_methods import step_methods
from seamlessflow.trainer.steps.barren import BarrenSteps, NothingToTrain
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.evaluations import Evaluations
from seamlessflow.trainer.steps.one_step import StepDone, StepOrder, StepRunner
from seamlessflow.trainer.steps.reports import LEARNING, Reports

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announced:
    """A batch that waits for the scheduler to start its step."""

    batch: Batch
    facts: Mapping[str, float]
    ready_ms: int
    control_offset: int
    """Offset up to which `control` was read for the batch."""


@dataclass(eq=False)
class StepSequence:
    """A run's steps, beginning with the step at which this process resumes."""

    _process: ProcessParts
    _checkpoint: Checkpoint
    """The checkpoint that this process began with; the loop keeps its control state up to date."""
    _resume: Resume
    _dataloader: Dataloader
    _runner: StepRunner
    _reports: Reports
    _announced: Announced | None = None
    _started: r.StepStarted | None = None

    def __post_init__(self) -> None:
        self._control_state = self._checkpoint.control_state
        self.origin = self._resume.origin
        """The weights in memory."""
        self._next_version = self._resume.next_version
        self._barren = BarrenSteps()
        settings = self._process.settings
        leads = settings.run.policy == settings.run.all_policies[0]
        splits = settings.evaluation.splits if leads else ()
        sets = {split: PassTerms(*settings.evaluation.passing(split)) for split in splits}
        self._evaluations = Evaluations(self._control_state, sets)
        self._saved = self.origin
        self._free_ms = self._process.now_ms()
        """The last step's end, or this trainer's start."""
        self._writing = Work(self._process.wake)
        """The checkpoint that is being written, beside the steps."""
        self._process.status.version = self.origin.version
        self._process.status.step = self.origin.step

    @property
    def all_done(self) -> bool:
        """Return whether no step is left; skipped ones do not count."""
        if self.origin.trained >= self._process.settings.run.steps:
            return True
        again = self.origin.step in self._resume.again
        return self._dataloader.used_up and not again and self._announced is None

    @property
    def over(self) -> bool:
        """Return whether no step is left, and any due evaluation of the last version is done."""
        if not self.all_done or self._control_state.finished >= self.origin.trained:
            return self.all_done
        return not self._evaluations.under_way(self.origin.version, self._process.now_ms())

    def apply(self, record: Record) -> None:
        """Apply a record on `control`. Raise `AnotherTrainer`."""
        lineage = self._resume.lineage
        gang = self._process.gang
        match record:
            case r.StepStarted() if gang.counts(record):
                self._started = record
            case r.StepCommitted() if record.lineage != lineage and gang.concerns(record.policy):
                self._runner.fence()
                raise AnotherTrainer(record.lineage, lineage)

    def advance(self) -> None:
        """Announce the next batch if it is complete; begin its step if the scheduler started it."""
        self._writing.collect()
        for evaluation in self._evaluations.completed(self._process.now_ms()):
            named = bool(self._process.settings.evaluation.sets)
            self._reports.report_evaluation(evaluation, named)
            self._process.send(evaluation)
        if self._announced is None and not self.all_done:
            self._offer()
        announced = self._announced
        started = self._started
        if announced is None or started is None:
            return
        process = self._process
        if process.gang.may_start(started, announced.batch.step):
            process.gang.check(process.settings.trainer.ranks, started)
            self._begin(announced)

    def finish(self) -> None:
        """Wait for work under way, report the run's end if it is reached, and save.

        A gang with several ranks does not save here, because its other ranks may have ended. After
        a restart it executes unsaved steps again.
        """
        process = self._process
        self._runner.end_soon()
        process.work.finish()
        self._runner.settle()
        self._writing.finish()
        if self.over and self._control_state.finished < self.origin.trained:
            at_ms = process.now_ms()
            steps = self.origin.trained
            short = steps < process.settings.run.steps
            reason = "all recorded sessions are read" if short else "all steps are done"
            process.send(r.RunFinished(at_ms=at_ms, steps=steps, reason=reason))
        if self._saved.step != self.origin.step and process.settings.trainer.ranks == 1:
            self._save()
            process.work.finish()
            self._writing.finish()

    def close(self) -> None:
        """Wait for the thread that writes checkpoints; its result is lost."""
        self._writing.close()

    def _offer(self) -> None:
        """Announce the next step's batch, or skip the step, or wait for more groups."""
        process = self._process
        step = self.origin.step
        now_ms = self._process.now_ms()
        batch, dropped = self._dataloader.next_batch(step, now_ms)
        process.send(*dropped)
        if batch is None:
            return
        if step not in self._resume.again:
            self._check_trainable(batch, now_ms)
        if isinstance(batch, SkippedStep):
            self._skip(step, now_ms)
        else:
            loader = self._dataloader
            metrics = facts(batch, loader.clock(step), loader.rules.rewards)
            read = self._control_state.offset
            self._announced = Announced(batch, metrics, now_ms, read)
            names = tuple(group.group.group_id for group in batch.new_groups)
            process.send(
                r.BatchReady(
                    at_ms=now_ms,
                    step=step,
                    groups=names,
                    trainable_tokens=batch.trained(),
                    methods=step_methods(process.settings),
                    control_offset=read,
                )
            )

    def _check_trainable(self, batch: Batch | SkippedStep, now_ms: int) -> None:
        """Report a step without a token to train; raise `NothingToTrain` after too many."""
        loader = self._dataloader
        tokens = loader.given_up.with_groups(batch.new_groups if isinstance(batch, Batch) else ())
        begins = self._barren.add(tokens, self.origin.trained)
        reason = why_barren(tokens, loader.dropped, loader.newest_drop)
        if begins:
            detail = f"{step_name(batch.step)} has nothing to train: {reason}"
            _log.error("%s", detail)
            stalled = r.ProgressStalled(at_ms=now_ms, what=LEARNING, detail=detail, since_ms=now_ms)
            self._process.send(stalled)
        if self._barren.count >= self._process.settings.trainer.most_barren_steps:
            raise NothingToTrain(self._barren.count, reason)

    def _skip(self, step: int, now_ms: int) -> None:
        """Count a step in which nothing is left to train; the weights stay as they are."""
        # A recorded skip is on the log already, and groups dropped since belong to the next step.
        if step not in self._resume.again:
            self._process.send(r.StepSkipped(at_ms=now_ms, step=step, reason="no_groups"))
            metrics = self._dataloader.drop_metrics()
            self._process.send(*self._reports.nothing_learned(metrics, now_ms))
        self.origin = replace(self.origin, step=step + 1, skipped=self.origin.skipped + 1)
        self._control_state.steps_of[self.origin.version] = step + 1

    def _begin(self, announced: Announced) -> None:
        now_ms = self._process.now_ms()
        waited = {
            "batch_s": (announced.ready_ms - self._free_ms) / 1000,
            "wait_s": (now_ms - announced.ready_ms) / 1000,
        }
        metrics = {**announced.facts, **waited}
        # Some masked tokens are in the batch, others in groups dropped for it.
        for name, value in self._dataloader.drop_metrics().items():
            metrics[name] = metrics.get(name, 0.0) + value
        order = StepOrder(
            batch=announced.batch,
            facts=metrics,
            version=self.origin.version,
            next_version=self._next_version,
            lineage=self._resume.lineage,
            parent_lineage=self._resume.origin.lineage,
            trained_before=self.origin.trained,
            # A copy: the loop goes on changing the set while the step runs in its thread.
            consumed=frozenset(self._control_state.consumed),
            started_ms=now_ms,
            control_offset=announced.control_offset,
        )
        self._started = None
        self._process.status.state = "training"
        self._process.work.begin(lambda: self._runner.run(order), self._done)

    def _done(self, done: StepDone) -> None:
        process = self._process
        order = done.order
        step = order.batch.step + 1
        self._dataloader.consumed(order.batch)
        self._control_state.steps_of[order.next_version] = step
        self.origin = Origin(step, order.next_version, order.lineage, self.origin.skipped)
        self._next_version = order.next_version + 1
        self._announced = None
        self._free_ms = done.at_ms
        process.status.version = order.next_version
        process.status.step = step
        process.status.state = "ready"
        process.send(*self._reports.report_step(done))
        due = step % process.settings.trainer.checkpoint_every == 0
        # A late checkpoint may be left out; the steps after the last one are executed again.
        if self.all_done or (due and self._writing.idle):
            self._save()
        else:
            self._runner.rest(order.batch.step)

    def _save(self) -> None:
        """Begin a checkpoint of the present state: copy the state, then write its files."""
        process = self._process
        origin = self.origin
        self._control_state.settle(origin.step)
        content = Checkpoint(
            origin,
            self._dataloader.low_water(self._checkpoint.first_offsets),
            # A copy: the loop goes on folding `control` while the checkpoint is written.
            copy.deepcopy(self._control_state),
            process.gang.epoch,
            self._checkpoint.log,
            reusable=self._dataloader.store.recorded(),
            layout=process.settings.trainer.layout,
            pools=self._dataloader.mixing.recorded(),
        )

        def copied(_: None) -> None:
            self._runner.rest(origin.step - 1)
            # The last checkpoint may find the previous one unfinished.
            self._writing.finish()
            self._writing.begin(lambda: self._runner.save(content), saved)

        def saved(directory: Path) -> None:
            self._saved = origin
            _log.info("checkpoint of step %d: %s", origin.step, directory)

        process.work.begin(self._runner.snapshot, copied)
