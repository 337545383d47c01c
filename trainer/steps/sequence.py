"""Step after step: a batch is announced, started by the scheduler, trained, saved now and then.

Holds where training stands. Called by the loop while no other work is under way.
"""

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.kafka.producer import Producer
from schemas import records as r
from schemas.records import Record
from schemas.topics import CONTROL
from trainer.backends.backend import Backend
from trainer.data.batch import Batch, facts
from trainer.data.staleness import StepClock
from trainer.recovery import checkpoint
from trainer.recovery.checkpoint import Checkpoint
from trainer.recovery.control_state import ControlState
from trainer.recovery.resume import Origin, Resume
from trainer.roles.gang_errors import AnotherTrainer, check_gang
from trainer.roles.heartbeat import Vitals
from trainer.roles.roles import TrainerRoles
from trainer.roles.usage import Usage
from trainer.settings import TrainerSettings
from trainer.steps.dataloader import Dataloader, SkippedStep
from trainer.steps.one_step import StepDone, StepOrder, StepRunner
from trainer.steps.reports import Reports, evaluation
from trainer.work import Work

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announced:
    """A batch that waits for the gang."""

    batch: Batch
    facts: Mapping[str, float]
    ready_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What `Steps` works with."""

    settings: TrainerSettings
    producer: Producer
    resume: Resume
    log: str
    """Cluster and topic prefix."""
    started_at: Mapping[int, int]
    """Offset of each partition of `trajectories` that was read first."""
    control_state: ControlState
    roles: TrainerRoles
    dataloader: Dataloader
    backend: Backend
    runner: StepRunner
    reports: Reports
    work: Work
    vitals: Vitals
    usage: Usage
    now_ms: Callable[[], int]


class StepSequence:
    """The steps of a run, from where the plan begins."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.origin = parts.resume.origin
        """The weights in memory."""
        self._next_version = parts.resume.next_version
        self._saved = parts.resume.origin
        self._announced: Announced | None = None
        self._started: r.StepStarted | None = None
        self._evaluated: dict[str, float] = {}
        parts.vitals.version = self.origin.version

    @property
    def all_done(self) -> bool:
        """Whether no step is left."""
        return self.origin.step >= self._parts.settings.run.steps

    def apply(self, record: Record) -> None:
        """Takes in a record of `control`. Raises `AnotherTrainer`."""
        own = self._parts.resume.lineage
        match record:
            case r.StepStarted():
                self._started = record
            case r.StepCommitted() if record.lineage != own:
                self._parts.runner.fence()
                raise AnotherTrainer(record.lineage, own)

    def advance(self) -> None:
        """Announces the next batch when it is complete; begins the step when it may."""
        self._evaluated |= evaluation(self._parts.dataloader.evaluated())
        if self._announced is None and not self.all_done:
            self._offer()
        announced, started = self._announced, self._started
        if announced is None or started is None:
            return
        if self._parts.roles.may_start(started, announced.batch.step):
            check_gang(self._parts.roles, started, self._parts.settings.trainer.ranks)
            self._begin(announced)

    def finish(self) -> None:
        """Tells that the run is over, if it is; saves what is not saved. Waits for both.

        Other ranks are not asked any more: what a gang has not saved it executes again.
        """
        parts = self._parts
        parts.runner.end_soon()
        parts.work.finish()
        if self.all_done and parts.control_state.finished < self.origin.step:
            at_ms, steps = parts.now_ms(), self.origin.step
            self._send(r.RunFinished(at_ms=at_ms, steps=steps, reason="all steps are done"))
        if self._saved.step != self.origin.step and parts.settings.trainer.ranks == 1:
            self._save()
            parts.work.finish()

    def _offer(self) -> None:
        parts, step, now_ms = self._parts, self.origin.step, self._parts.now_ms()
        found, dropped = parts.dataloader.next_batch(step, now_ms)
        self._send(*dropped)
        if isinstance(found, SkippedStep):
            self._skip(step, now_ms)
        elif found is not None:
            known = facts(found, StepClock(parts.control_state.steps_of, step))
            self._announced = Announced(found, known, now_ms)
            names = tuple(group.group_id for group in found.members())
            tokens = found.trained()
            self._send(r.BatchReady(at_ms=now_ms, step=step, groups=names, trainable_tokens=tokens))

    def _skip(self, step: int, now_ms: int) -> None:
        """Nothing is left to train in this step; the weights stay what they are."""
        parts = self._parts
        if step not in parts.resume.again:
            self._send(r.StepSkipped(at_ms=now_ms, step=step, reason="no_groups"))
        self._send(*parts.reports.nothing_learned(parts.dataloader.losses(), now_ms))
        self.origin = Origin(step + 1, self.origin.version, self.origin.lineage)
        parts.control_state.steps_of[self.origin.version] = step + 1

    def _begin(self, announced: Announced) -> None:
        parts, now_ms = self._parts, self._parts.now_ms()
        waited = {"wait_s": (now_ms - announced.ready_ms) / 1000}
        known = {**announced.facts, **waited, **parts.dataloader.losses(), **self._evaluated}
        order = StepOrder(
            batch=announced.batch,
            facts=known,
            version=self.origin.version,
            next_version=self._next_version,
            lineage=parts.resume.lineage,
            parent_lineage=parts.resume.origin.lineage,
            consumed=frozenset(parts.control_state.consumed),
            started_ms=now_ms,
        )
        self._started, self._evaluated = None, {}
        parts.vitals.state = "training"
        parts.usage.now("training", now_ms)
        parts.work.begin(lambda: parts.runner.run(order), self._done)

    def _done(self, done: StepDone) -> None:
        parts, order = self._parts, done.order
        step = order.batch.step + 1
        parts.dataloader.consumed(order.batch)
        parts.control_state.steps_of[order.next_version] = step
        parts.usage.trained(order.batch.trained())
        self.origin = Origin(step, order.next_version, order.lineage)
        self._next_version, self._announced = order.next_version + 1, None
        parts.vitals.version = order.next_version
        self._send(*parts.reports.step(done))
        if step % parts.settings.trainer.checkpoint_every == 0 or self.all_done:
            self._save()
        else:
            parts.backend.rest()

    def _save(self) -> None:
        """Begins a checkpoint of what is in memory now."""
        parts, origin = self._parts, self.origin
        parts.control_state.settle(origin.step)
        content = Checkpoint(
            origin,
            parts.dataloader.low_water(parts.started_at),
            copy.deepcopy(parts.control_state),
            parts.roles.epoch,
            parts.roles.rollout_holds,
            parts.log,
        )
        root, keep = parts.settings.checkpoints_dir, parts.settings.trainer.checkpoints_kept
        parts.usage.now("loading", parts.now_ms())

        def saved(directory: Path) -> None:
            self._saved = origin
            parts.backend.rest()
            _log.info("checkpoint of step %d: %s", origin.step, directory)

        parts.work.begin(lambda: checkpoint.write(root, content, parts.backend.save, keep), saved)

    def _send(self, *records: Record) -> None:
        for record in records:
            self._parts.producer.send(CONTROL.name, record)
