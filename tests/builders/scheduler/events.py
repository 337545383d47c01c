"""Records of `control` and `fleet` in few words, and the folds of them."""

from collections.abc import Iterable
from functools import reduce
from pathlib import Path

from scheduler.decisions.decide import Rules, View
from scheduler.decisions.strategies import named
from scheduler.decisions.task_source import TaskRow, TaskSource
from scheduler.settings import (
    EvaluationSection,
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from scheduler.state import state
from scheduler.state.fleet import Fleet
from scheduler.state.fleet import apply as fleet_apply
from scheduler.state.state import State
from schemas import records as r
from schemas.records import Record

BOTH = ("rollout", "train")


def fold(*records: Record) -> State:
    """The state after these records."""
    return reduce(state.apply, records, State())


def fleet_of(*heartbeats: r.WorkerHeartbeat, now_ms: int = 0) -> Fleet:
    """The fleet after these heartbeats."""
    return reduce(lambda known, heard: fleet_apply(known, heard, now_ms), heartbeats, Fleet())


def claimed(epoch: int = 1, scheduler: str = "a", at_ms: int = 0) -> Record:
    return r.SchedulerClaimed(epoch=epoch, scheduler=scheduler, at_ms=at_ms)


def heartbeat(
    worker: str,
    process: str = "rollout",
    tags: tuple[str, ...] = BOTH,
    incarnation: str = "1",
    at_ms: int = 0,
    state: str = "ready",
) -> r.WorkerHeartbeat:
    return r.WorkerHeartbeat(
        worker=worker,
        incarnation=incarnation,
        process=process,
        tags=tags,
        role="none",
        assignment=-1,
        state=state,
        at_ms=at_ms,
    )


def joined(
    worker: str, process: str = "rollout", tags: tuple[str, ...] = BOTH, incarnation: str = "1"
) -> Record:
    return r.WorkerJoined(
        epoch=1, at_ms=0, worker=worker, incarnation=incarnation, process=process, tags=tags
    )


def joined_both(worker: str) -> list[Record]:
    return [joined(worker, "rollout"), joined(worker, "train")]


def lost(worker: str, process: str = "rollout", incarnation: str = "1") -> Record:
    return r.WorkerLost(
        epoch=1,
        at_ms=0,
        worker=worker,
        incarnation=incarnation,
        process=process,
        reason="no_heartbeat",
    )


def assigned(
    worker: str,
    role: str = "rollout",
    number: int = 0,
    gang_epoch: int = 0,
    slot: int | None = None,
    at_ms: int = 0,
    deadline_ms: int = 1_000,
) -> Record:
    return r.RoleAssigned(
        epoch=1,
        at_ms=at_ms,
        assignment=number,
        worker=worker,
        incarnation="1",
        role=role,
        slot=slot,
        gang_epoch=gang_epoch,
        reason="",
        deadline_ms=deadline_ms,
    )


def acquired(
    worker: str, role: str = "rollout", number: int = 0, at_ms: int = 0, took_ms: int = 0
) -> Record:
    return r.RoleAcquired(
        at_ms=at_ms, worker=worker, incarnation="1", role=role, assignment=number, took_ms=took_ms
    )


def released(
    worker: str,
    role: str = "rollout",
    number: int = 0,
    at_ms: int = 0,
    took_ms: int = 0,
    handed_back: int = 0,
) -> Record:
    return r.RoleReleased(
        at_ms=at_ms,
        worker=worker,
        incarnation="1",
        role=role,
        assignment=number,
        free_bytes=0,
        handed_back=handed_back,
        took_ms=took_ms,
    )


def holds(worker: str, role: str = "rollout", number: int = 0, gang_epoch: int = 0) -> list[Record]:
    slot = number if role == "rollout" else None
    return [assigned(worker, role, number, gang_epoch, slot), acquired(worker, role, number)]


def timed_out(worker: str, role: str = "train", number: int = 0, at_ms: int = 0) -> Record:
    return r.AssignmentTimedOut(
        epoch=1, at_ms=at_ms, assignment=number, worker=worker, role=role, waited_ms=1
    )


def admitted(
    group: str,
    task: str = "task-0",
    at_ms: int = 0,
    deadline_ms: int = 1_000_000,
    purpose: str = "train",
    version: int = 0,
    epoch: int = 1,
) -> Record:
    return r.GroupAdmitted(
        epoch=epoch,
        at_ms=at_ms,
        group_id=group,
        task_id=task,
        version=version,
        deadline_ms=deadline_ms,
        purpose=purpose,
    )


def ready(group: str, at_ms: int = 0) -> Record:
    return r.GroupReady(
        at_ms=at_ms, group_id=group, reward_mean=0, reward_std=0, trainable_tokens=1
    )


def dropped(group: str, reason: str = "filtered", at_ms: int = 0) -> Record:
    return r.GroupDropped(at_ms=at_ms, group_id=group, reason=reason)


def sample_failed(group: str, sample: int, attempt: int = 0, at_ms: int = 0) -> Record:
    return r.SampleFailed(
        at_ms=at_ms, group_id=group, sample=sample, attempt=attempt, cause="environment"
    )


def batch_ready(step: int = 0, at_ms: int = 0) -> Record:
    return r.BatchReady(at_ms=at_ms, step=step, trainable_tokens=1)


def started(workers: Iterable[str], step: int = 0, gang_epoch: int = 1, at_ms: int = 0) -> Record:
    return r.StepStarted(
        epoch=1,
        at_ms=at_ms,
        step=step,
        gang="train",
        gang_epoch=gang_epoch,
        workers=tuple(workers),
    )


def committed(step: int = 0, groups: Iterable[str] = (), version: int | None = None) -> Record:
    return r.StepCommitted(
        at_ms=0,
        step=step,
        lineage="a",
        version=step + 1 if version is None else version,
        groups=tuple(r.StepGroup(group_id=group) for group in groups),
    )


def consumed(group: str, step: int = 0) -> Record:
    return r.GroupConsumed(at_ms=0, group_id=group, step=step)


def published(version: int = 0, at_ms: int = 0) -> Record:
    return r.WeightsPublished(
        at_ms=at_ms,
        policy="policy",
        version=version,
        step=version,
        lineage="a",
        directory="",
        manifest_sha256="",
    )


def completed(step: int = 0, at_ms: int = 0, took_ms: int = 100) -> Record:
    return r.StepCompleted(at_ms=at_ms, step=step, lineage="a", version=step + 1, took_ms=took_ms)


def usage(
    worker: str,
    process: str = "rollout",
    decoding_ms: int = 0,
    training_ms: int = 0,
    idle_ms: int = 0,
    tokens: int = 0,
) -> r.WorkerUsage:
    return r.WorkerUsage(
        at_ms=0,
        worker=worker,
        incarnation="1",
        process=process,
        from_ms=0,
        decoding_ms=decoding_ms,
        training_ms=training_ms,
        idle_ms=idle_ms,
        tokens=tokens,
    )


def settings(
    run: RunSection | None = None,
    scheduler: SchedulerSection | None = None,
    pacing: PacingSection | None = None,
    evaluation: EvaluationSection | None = None,
) -> SchedulerSettings:
    """Settings with tasks."""
    return SchedulerSettings(
        run=run or RunSection(),
        scheduler=scheduler or SchedulerSection(),
        pacing=pacing or PacingSection(tasks=Path("tasks.jsonl")),
        evaluation=evaluation or EvaluationSection(),
    )


def tasks(count: int = 4, shuffled: bool = False) -> TaskSource:
    """A source of so many tasks."""
    rows = tuple(TaskRow(f"task-{number}", b'{"id":0}', {}) for number in range(count))
    return TaskSource(rows, {row.task_id: row for row in rows}, 0, shuffled)


def rules(chosen: SchedulerSettings | None = None) -> Rules:
    """Rules over made-up tasks."""
    chosen = chosen or settings()
    return Rules(chosen, named(chosen.scheduler.policy), {"train": tasks()})


def view(*records: Record, fleet: Fleet | None = None) -> View:
    """What a scheduler knows that read these records."""
    return View(fold(*records), fleet or Fleet())
