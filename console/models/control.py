"""Workers and their roles, steps, groups and warnings, as `control` has them. A pure fold.

A deposed scheduler's decisions do not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from seamlessflow.console.models.warnings import RunWarning, warning_of
from seamlessflow.infra.kafka.client import Received
from seamlessflow.scheduler.state.accounts.device_time import shares
from seamlessflow.scheduler.state.state import SchedulerDecision
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_OF_WORKERS = (
    r.WorkerUsage,
    r.WorkerJoined,
    r.WorkerLost,
    r.RoleAssigned,
    r.RoleAcquired,
    r.RoleReleased,
    r.GenerationPaused,
    r.GenerationResumed,
    r.WeightsLoaded,
)
RECENT_STEPS = 20
MOST_WARNINGS = 50
_FADING = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker, from its own records and the scheduler's."""

    worker: str
    phase: str = "joined"
    """`joined`, `assigned`, `acquired`, `training`, `loading`, `released` or `lost`."""
    role: str = ""
    policy: str = ""
    reason: str = ""
    """Reason for its last assignment, in the strategy's words."""
    since_ms: int = 0
    step: int | None = None
    version: int | None = None
    incarnation: str = ""
    processes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    devices: int = 1
    assignments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """An optimizer step; a time is None until its record comes."""

    policy: str
    step: int
    groups: int = 0
    tokens: int = 0
    workers: tuple[str, ...] = ()
    ready_ms: int | None = None
    started_ms: int | None = None
    committed_ms: int | None = None
    published_ms: int | None = None
    ended_ms: int | None = None
    version: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUnderWay:
    """A group that is admitted, and not consumed or dropped yet."""

    group_id: str
    task_id: str
    policy: str
    purpose: str
    size: int
    admitted_ms: int
    deadline_ms: int
    version: int
    state: str = "running"
    """`running`, `ready` or `in batch`."""
    reward_mean: float | None = None
    failed: int = 0


class DecodedTokens(NamedTuple):
    """Tokens that a worker sampled and the time it decoded; later reports count more."""

    tokens: float = 0.0
    decoding_ms: float = 0.0

    def with_report(self, report: r.WorkerUsage) -> "DecodedTokens":
        """Return the sums with another report; each earlier report counts a tenth less."""
        return DecodedTokens(
            _FADING * self.tokens + report.tokens,
            _FADING * self.decoding_ms + report.decoding_ms,
        )

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second while it decoded; None for a worker that has not decoded."""
        return 1000 * self.tokens / self.decoding_ms if self.decoding_ms >= 1 else None


@dataclass
class ControlFold:
    """The fold of `control`. Its values are immutable, so a copy copies only the dictionaries."""

    epoch: int = 0
    scheduler: str = ""
    records: int = 0
    at_ms: int = 0
    """The last record's time on the log."""
    workers: dict[str, WorkerState] = field(default_factory=dict)
    usage: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Shares of each worker's rollout time by category, from its last report."""
    decoded: dict[str, DecodedTokens] = field(default_factory=dict)
    """Tokens in each worker's last reports."""
    steps: dict[str, StepState] = field(default_factory=dict)
    """By policy, the step that is under way or is made ready."""
    completed: dict[str, tuple[StepState, ...]] = field(default_factory=dict)
    """Last steps by policy, the newest at the end."""
    steps_done: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupUnderWay] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Record counts by type."""
    versions: dict[str, int] = field(default_factory=dict)
    """Newest published version by policy."""
    warnings: tuple[RunWarning, ...] = ()
    finished: dict[str, int] = field(default_factory=dict)
    """By policy, its steps at the end. Only policies that have ended are in it."""

    @property
    def ended(self) -> bool:
        """True if no step is under way and each policy with a completed step has finished."""
        trained = self.completed.keys()
        return bool(self.finished) and not self.steps and trained <= self.finished.keys()

    def copy(self) -> Self:
        """Return a copy that no later record changes."""
        copied: dict[str, Any] = {
            name: value.copy() if isinstance(value, dict) else value
            for name, value in vars(self).items()
        }
        return type(self)(**copied)

    def apply(self, item: Received) -> None:
        """Fold a record in."""
        record = item.record
        self.records += 1
        self.at_ms = item.timestamp_ms
        if isinstance(record, r.SchedulerClaimed) and record.epoch >= self.epoch:
            self.epoch = record.epoch
            self.scheduler = record.scheduler
        if isinstance(record, SchedulerDecision) and record.epoch < self.epoch:
            return
        name = type(record).__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        if isinstance(record, _OF_WORKERS):
            self._worker(record)
            if isinstance(record, r.WorkerUsage):  # most of all records
                return
        self._step(record)
        self._group(record)
        warning = warning_of(item)
        if warning is not None:
            self.warnings = (*self.warnings, warning)[-MOST_WARNINGS:]

    def _worker(self, record: Record) -> None:
        match record:
            case r.WorkerUsage(process="rollout") if record.worker in self.workers:
                self.usage[record.worker] = shares(record)
                before_it = self.decoded.get(record.worker, DecodedTokens())
                self.decoded[record.worker] = before_it.with_report(record)
            case r.WorkerJoined():
                before = self.workers.get(record.worker)
                joined = before.processes if before is not None and before.phase != "lost" else ()
                processes = tuple(sorted({*joined, record.process}))
                changes: dict[str, Any] = {"processes": processes, "tags": record.tags}
                changes["devices"] = max(1, len(record.devices))
                if not joined:
                    changes |= {"phase": "joined", "role": "", "since_ms": self.at_ms}
                self._set(record.worker, **changes)
            case r.WorkerLost() if record.worker in self.workers:
                self._lose(record)
            case r.RoleAssigned():
                self._assign(record)
            case r.RoleAcquired():
                version = record.version
                phase = {"phase": "acquired", "role": record.role, "since_ms": self.at_ms}
                newest = {} if version is None else {"version": version}
                self._set(record.worker, incarnation=record.incarnation, **phase, **newest)
            case r.RoleReleased():
                self._release(record)
            case r.GenerationPaused() if self._serves(record.worker):
                self._set(record.worker, phase="loading", since_ms=self.at_ms)
            case r.GenerationResumed() if self._serves(record.worker):
                phase = {"phase": "acquired", "since_ms": self.at_ms}
                self._set(record.worker, version=record.version, **phase)
            case r.WeightsLoaded() if record.worker in self.workers:
                self._set(record.worker, version=record.version)

    def _lose(self, record: r.WorkerLost) -> None:
        worker = self.workers[record.worker]
        left = tuple(name for name in worker.processes if name != record.process)
        gone = {"processes": left}
        if not left or record.incarnation == worker.incarnation:
            lost = {"phase": "lost", "role": "", "since_ms": self.at_ms, "reason": record.reason}
            self._set(record.worker, **gone, **lost)
            self.usage.pop(record.worker, None)
            self.decoded.pop(record.worker, None)
        else:
            self._set(record.worker, **gone)

    def _assign(self, record: r.RoleAssigned) -> None:
        worker = self.workers.get(record.worker)
        number = worker.assignments if worker is not None else 0
        self._set(
            record.worker,
            phase="assigned",
            role=record.role,
            policy=record.policy,
            reason=record.reason,
            since_ms=self.at_ms,
            incarnation=record.incarnation,
            step=None,
            assignments=number + 1,
        )

    def _release(self, record: r.RoleReleased) -> None:
        worker = self.workers.get(record.worker)
        # A worker also gives up a role when another is assigned. The assigned one then stays.
        if worker is not None and worker.role == record.role and worker.phase != "assigned":
            self._set(record.worker, phase="released", since_ms=self.at_ms)

    def _serves(self, worker: str) -> bool:
        state = self.workers.get(worker)
        return state is not None and state.role == "rollout" and state.phase != "assigned"

    def _set(self, worker: str, **changes: Any) -> None:
        self.workers[worker] = replace(
            self.workers.get(worker) or WorkerState(worker=worker), **changes
        )

    def _step(self, record: Record) -> None:
        match record:
            case r.BatchReady():
                fresh = StepState(policy=record.policy, step=record.step)
                tokens = record.trainable_tokens
                self.steps[record.policy] = replace(
                    fresh, groups=len(record.groups), tokens=tokens, ready_ms=self.at_ms
                )
            case r.StepStarted():
                self._change(record, started_ms=self.at_ms, workers=record.workers)
                for worker in record.workers:
                    step = {"phase": "training", "step": record.step, "since_ms": self.at_ms}
                    self._set(worker, role="train", **step)
            case r.StepCommitted():
                self._change(record, committed_ms=self.at_ms, version=record.version)
            case r.WeightsPublished():
                self._publish(record)
            case r.StepCompleted() | r.StepSkipped():
                self._complete(record)
            case r.RunFinished():
                self.finished[record.policy] = record.steps
            case r.LineageStarted():  # a run that had ended goes on
                self.finished.pop(record.policy, None)

    def _publish(self, record: r.WeightsPublished) -> None:
        self.versions[record.policy] = record.version
        step = self.steps.get(record.policy)
        if step is not None and step.version == record.version:
            self.steps[record.policy] = replace(step, published_ms=self.at_ms)

    def _change(self, record: r.StepStarted | r.StepCommitted, **changes: Any) -> None:
        step = self.steps.get(record.policy)
        if step is None or step.step != record.step:
            step = StepState(policy=record.policy, step=record.step)
        self.steps[record.policy] = replace(step, **changes)

    def _complete(self, record: r.StepCompleted | r.StepSkipped) -> None:
        step = self.steps.pop(record.policy, None)
        if step is None or step.step != record.step:
            step = StepState(policy=record.policy, step=record.step)
        for worker in step.workers:
            if self.workers[worker].phase == "training":
                self._set(worker, phase="acquired", step=None, since_ms=self.at_ms)
        if isinstance(record, r.StepCompleted):
            done = replace(
                step, metrics=record.metrics, ended_ms=self.at_ms, version=record.version
            )
            before = self.completed.get(record.policy, ())
            self.completed[record.policy] = (*before, done)[-RECENT_STEPS:]
            self.steps_done[record.policy] = self.steps_done.get(record.policy, 0) + 1

    def _group(self, record: Record) -> None:
        match record:
            case r.GroupAdmitted():
                self.groups[record.group_id] = GroupUnderWay(
                    group_id=record.group_id,
                    task_id=record.task_id,
                    policy=record.policy,
                    purpose=record.purpose,
                    size=record.group_size,
                    admitted_ms=self.at_ms,
                    deadline_ms=record.deadline_ms,
                    version=record.version,
                )
            case r.GroupReady() if record.group_id in self.groups:
                group = self.groups[record.group_id]
                if group.purpose == "train":
                    ready = replace(group, state="ready", reward_mean=record.reward_mean)
                    self.groups[record.group_id] = ready
                else:  # evaluations and explorations are over then
                    del self.groups[record.group_id]
            case r.BatchReady():
                for name in record.groups:
                    if name in self.groups:
                        self.groups[name] = replace(self.groups[name], state="in batch")
            case r.SampleFailed() if record.group_id in self.groups:
                group = self.groups[record.group_id]
                self.groups[record.group_id] = replace(group, failed=group.failed + 1)
            case r.GroupConsumed() | r.GroupDropped():
                self.groups.pop(record.group_id, None)
