"""Builders of records of `control`; see `builder`."""

from collections.abc import Iterable
from typing import Any

from seamlessflow.schemas import records as r
from tests.builders.records.builder import builder

claimed = builder(r.SchedulerClaimed(epoch=1, scheduler="a", at_ms=0), "epoch", "scheduler")
joined = builder(
    r.WorkerJoined(
        epoch=1,
        at_ms=0,
        worker="w",
        incarnation="i",
        process="rollout",
        tags=("rollout", "train"),
    ),
    *("worker", "process", "tags"),
)
lost = builder(
    r.WorkerLost(
        epoch=1, at_ms=0, worker="w", incarnation="i", process="rollout", reason="no_heartbeat"
    ),
    *("worker", "process"),
)
usage = builder(
    r.WorkerUsage(at_ms=0, worker="w", incarnation="i", process="rollout", from_ms=0),
    *("worker", "process"),
)
assigned = builder(
    r.RoleAssigned(
        epoch=1,
        at_ms=0,
        assignment=0,
        worker="w",
        incarnation="i",
        role="rollout",
        reason="",
        deadline_ms=1_000,
    ),
    *("worker", "role", "assignment"),
)
timed_out = builder(
    r.AssignmentTimedOut(epoch=1, at_ms=0, assignment=0, worker="w", role="train", waited_ms=1),
    *("worker", "role", "assignment"),
)
acquired = builder(
    r.RoleAcquired(at_ms=0, worker="w", incarnation="i", role="rollout", assignment=0, took_ms=0),
    *("worker", "role", "assignment"),
)
released = builder(
    r.RoleReleased(
        at_ms=0,
        worker="w",
        incarnation="i",
        role="rollout",
        assignment=0,
        free_bytes=0,
        took_ms=0,
    ),
    *("worker", "role", "assignment"),
)
admitted = builder(
    r.GroupAdmitted(
        epoch=1, at_ms=0, group_id="g", task_id="task-0", version=0, deadline_ms=1_000_000
    ),
    *("group_id", "task_id"),
)
ready = builder(
    r.GroupReady(at_ms=0, group_id="g", reward_mean=0, reward_std=0, trainable_tokens=1), "group_id"
)
dropped = builder(r.GroupDropped(at_ms=0, group_id="g", reason="filtered"), "group_id", "reason")
expired = builder(r.GroupExpired(epoch=1, at_ms=0, group_id="g"), "group_id")
consumed = builder(r.GroupConsumed(at_ms=0, group_id="g", step=0), "group_id", "step")
sample_failed = builder(
    r.SampleFailed(at_ms=0, group_id="g", sample=0, attempt=0, cause="environment"),
    *("group_id", "sample", "attempt"),
)
batch_ready = builder(r.BatchReady(at_ms=0, step=0, trainable_tokens=1), "step")
skipped = builder(r.StepSkipped(at_ms=0, step=0, reason="no_groups"), "step")
loaded = builder(
    r.WeightsLoaded(at_ms=0, policy="policy", version=0, worker="w", incarnation="i", took_ms=0),
    "version",
)
paused = builder(
    r.GenerationPaused(
        at_ms=0, worker="w", incarnation="i", mode="keep", running=1, reason="weights"
    )
)
resumed = builder(r.GenerationResumed(at_ms=0, worker="w", incarnation="i", version=0, paused_ms=1))
stalled = builder(
    r.ProgressStalled(at_ms=0, what="rollout", detail="1 groups are running", since_ms=0), "what"
)
finished = builder(r.RunFinished(at_ms=0, steps=1, reason=""), "steps")


def started(workers: Iterable[str], step: int = 0, **changes: Any) -> r.StepStarted:
    fields: dict[str, Any] = {"epoch": 1, "at_ms": 0, "gang": "train", "gang_epoch": 1, **changes}
    return r.StepStarted(step=step, workers=tuple(workers), **fields)


def committed(
    step: int = 0, groups: Iterable[str | r.StepGroup] = (), **changes: Any
) -> r.StepCommitted:
    """Return the commit of a step; a group that is given by its id has no sessions."""
    members = (
        group if isinstance(group, r.StepGroup) else r.StepGroup(group_id=group) for group in groups
    )
    fields: dict[str, Any] = {"at_ms": 0, "lineage": "a", "version": step + 1, **changes}
    return r.StepCommitted(step=step, groups=tuple(members), **fields)


def published(version: int = 0, **changes: Any) -> r.WeightsPublished:
    fields: dict[str, Any] = {"at_ms": 0, "policy": "policy", "step": version, "lineage": "a"}
    place = {"directory": "", "manifest_sha256": ""}
    return r.WeightsPublished(version=version, **{**fields, **place, **changes})


def completed(step: int = 0, **changes: Any) -> r.StepCompleted:
    fields: dict[str, Any] = {"at_ms": 0, "lineage": "a", "version": step + 1, "took_ms": 100}
    return r.StepCompleted(step=step, **{**fields, **changes})


def evaluated(step: int, split: str, reward: float | None, **changes: Any) -> r.EvaluationCompleted:
    """Return the report of a round of two sessions."""
    fields: dict[str, Any] = {"at_ms": 0, "version": step, "groups": 1, "sessions": 2, **changes}
    return r.EvaluationCompleted(step=step, split=split, reward_mean=reward, **fields)
