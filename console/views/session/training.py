"""Training of a session's group, as `control` records it: its steps, or why none took it.

Pure; called by `reasons.py`. Each policy in a session has its own trainer and its own group.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.verify import surviving_steps
from seamlessflow.recorded.trace.training_rows import group_with
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import StepCommitted, StepGroup, Trajectory
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.recovery.control_state import ControlState

_CLOCK = (r.StepCommitted, r.StepSkipped, r.WeightsPublished)
READ = (
    *_CLOCK,
    r.BatchReady,
    r.GroupDropped,
    r.GroupReady,
    r.LineageStarted,
    r.RunFinished,
    r.SampleFailed,
    r.StepCompleted,
)
"""Record types that may be about a session's group; most records on `control` are about workers."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """A committed step whose batch has the session's group."""

    commit: StepCommitted
    item: Received
    """The commit as received, with its place."""
    group: StepGroup
    survives: bool
    """True if it led to the newest weights."""
    clock: StepClock
    settings: Mapping[str, Any]
    """Its lineage's settings, by section; empty if `control` has them no more."""
    metrics: Mapping[str, float]
    """Metrics from its `StepCompleted`; empty until that comes."""

    def method(self, kind: str) -> str:
        """Return the names of its methods with this kind; empty without any."""
        return ", ".join(method.name for method in self.commit.methods if method.kind == kind)

    @property
    def limit(self) -> int | None:
        """Most optimizer steps that a token may be old; None without a limit or settings."""
        trainer = self.settings.get("trainer", {})
        if not self.settings or self.method("staleness") == "correct":
            return None
        limit = trainer.get("max_staleness")
        return int(self.settings["run"]["lag"] if limit is None else limit)


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """Records on `control` about the session's group under one policy's trainer."""

    steps: tuple[BatchStep, ...] = ()
    failed: Received | None = None
    """`SampleFailed` about this session."""
    dropped: Received | None = None
    ready: Received | None = None
    batch: Received | None = None
    """`BatchReady` that has the group."""
    finished: Received | None = None
    """`RunFinished` behind all of these."""

    @property
    def surviving(self) -> tuple[BatchStep, ...]:
        """Its steps that led to the newest weights."""
        return tuple(step for step in self.steps if step.survives)


@dataclass(slots=True)
class _Gathered:
    newest: dict[type[r.Record], Received] = field(default_factory=dict)
    batch: Received | None = None


def group_records(control: Sequence[Received], trajectory: Trajectory, policy: str) -> GroupRecords:
    """Return what `control` says about a session's group. Other policies' records do not count.

    `control`: its records up to some moment, in order.
    """
    mine = [
        item
        for item in control
        if isinstance(item.record, READ) and item.record.policy in ("", policy)
    ]
    gathered = _Gathered()
    for item in mine:
        _gather(gathered, item, trajectory)
    return GroupRecords(
        steps=tuple(_steps(mine, trajectory.session_id, policy)),
        failed=gathered.newest.get(r.SampleFailed),
        dropped=gathered.newest.get(r.GroupDropped),
        ready=gathered.newest.get(r.GroupReady),
        batch=gathered.batch,
        finished=gathered.newest.get(r.RunFinished),
    )


def _gather(gathered: _Gathered, item: Received, trajectory: Trajectory) -> None:
    group_id = trajectory.group_id or trajectory.session_id
    match item.record:
        case r.SampleFailed() as failed if failed.group_id == group_id:
            if (failed.sample, failed.attempt) == (trajectory.sample, trajectory.attempt):
                gathered.newest[r.SampleFailed] = item
        case r.GroupReady() | r.GroupDropped() as ended if ended.group_id == group_id:
            gathered.newest[type(ended)] = item
        case r.BatchReady() as batch if group_id in batch.groups:
            gathered.batch = item
        case r.RunFinished():
            gathered.newest[r.RunFinished] = item


def _steps(control: Sequence[Received], session_id: str, policy: str) -> Iterable[BatchStep]:
    commits = [item.record for item in control if isinstance(item.record, StepCommitted)]
    surviving = {(step.step, step.lineage) for step in surviving_steps(commits)}
    settings = _settings_by_lineage(control)
    completed = _metrics_by_step(control)
    state = ControlState(policy)
    for item in control:
        record = item.record
        if isinstance(record, StepCommitted):
            group = group_with(record, session_id)
            if group is not None:
                of_lineage = settings.get(record.lineage, {})
                recorded = bool(of_lineage.get("trainer", {}).get("source_prefix"))
                steps_of = {} if recorded else dict(state.steps_of)
                yield BatchStep(
                    commit=record,
                    item=item,
                    group=group,
                    survives=(record.step, record.lineage) in surviving,
                    clock=StepClock(steps_of, record.step, recorded),
                    settings=of_lineage,
                    metrics=completed.get((record.step, record.lineage), {}),
                )
        if isinstance(record, _CLOCK):
            state.apply(record, item.offset)


def _settings_by_lineage(control: Iterable[Received]) -> dict[str, Mapping[str, Any]]:
    return {
        item.record.lineage: json.loads(item.record.settings)
        for item in control
        if isinstance(item.record, r.LineageStarted) and item.record.settings
    }


def _metrics_by_step(control: Iterable[Received]) -> dict[tuple[int, str], Mapping[str, float]]:
    return {
        (item.record.step, item.record.lineage): item.record.metrics
        for item in control
        if isinstance(item.record, r.StepCompleted)
    }
