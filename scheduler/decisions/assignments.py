"""Assignments that lead to the wanted roles, their time-outs, and step starts. Pure.

Each role change is one `RoleAssigned`, with a `WorkerAssignment` that keeps it on `fleet`. A gang's
members are assigned together, under one new gang epoch. Called by `scheduler/decisions/decide.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seamlessflow.scheduler.decisions import gates
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.steps import TrainingProgress
from seamlessflow.schemas import records as r

GANG = "train"


@dataclass(frozen=True, slots=True)
class NewAssignments:
    """Role changes, and the workers without a free slot in `prompts`."""

    assigned: tuple[r.RoleAssigned, ...]
    without_slot: tuple[str, ...]


def timed_out(state: State, now_ms: int) -> list[r.AssignmentTimedOut]:
    """Return the roles not acquired by their deadline. One such role breaks its gang."""
    return [
        r.AssignmentTimedOut(
            epoch=state.epoch,
            at_ms=now_ms,
            assignment=assignment.number,
            worker=name,
            role=assignment.role,
            waited_ms=now_ms - assignment.assigned_ms,
        )
        for name, worker in state.workers.items()
        if (assignment := worker.assignment) is not None
        and assignment.acquired_ms is None
        and not assignment.lapsed
        and now_ms >= assignment.deadline_ms
    ]


def new_assignments(
    state: State,
    snapshot: Snapshot,
    wanted: Sequence[Wanted],
    settings: SchedulerSettings,
    slots: int,
) -> NewAssignments:
    """Return the assignments still needed for the wanted roles.

    Leaves out optional ones that do not pay. `slots`: how many partitions `prompts` has.
    """
    due = _due_changes(snapshot, wanted)
    limits = settings.scheduler
    free = _free_slots(state, {want.worker for want in due}, slots)
    number = state.newest_assignment
    epoch = state.newest_gang + 1
    assigned: list[r.RoleAssigned] = []
    without_slot = []
    for want in due:
        slot = next(free, None) if want.role == "rollout" else None
        if want.role == "rollout" and slot is None:
            without_slot.append(want.worker)
            continue
        # Numbers grow over all workers: a process ignores numbers older than the last one it
        # obeyed.
        number += 1
        training = want.role == "train"
        timeout_s = limits.gang_timeout_s if training else limits.assignment_timeout_s
        assigned.append(
            r.RoleAssigned(
                epoch=state.epoch,
                at_ms=snapshot.now_ms,
                assignment=number,
                worker=want.worker,
                incarnation=state.workers[want.worker].processes[want.role].incarnation,
                role=want.role,
                slot=slot,
                gang=GANG if training else "",
                gang_epoch=epoch if training else 0,
                reason=want.reason,
                deadline_ms=snapshot.now_ms + milliseconds(timeout_s),
                policy=settings.run.policy,
                figures=dict(want.figures),
            )
        )
    return NewAssignments(tuple(assigned), tuple(without_slot))


def worker_assignment(assigned: r.RoleAssigned) -> r.WorkerAssignment:
    """Return the assignment as `fleet` keeps it."""
    return r.WorkerAssignment(
        worker=assigned.worker,
        incarnation=assigned.incarnation,
        role=assigned.role,
        slot=assigned.slot,
        epoch=assigned.epoch,
        assignment=assigned.assignment,
        at_ms=assigned.at_ms,
        policy=assigned.policy,
    )


def started(
    epoch: int, steps: TrainingProgress, snapshot: Snapshot, wanted: Sequence[Wanted], policy: str
) -> list[r.StepStarted]:
    """Return the start of the policy's waiting step, once the whole wanted gang has its role."""
    waiting = steps.waiting
    gang = steps.gang
    training = {want.worker for want in wanted if want.role == "train"}
    if waiting is None or not snapshot.gang or snapshot.gang != training:
        return []
    step, batch = waiting
    # A gang that formed again after a loss has another epoch and starts the same step again.
    if batch.started_epoch == gang.epoch or not _all_acquired(snapshot):
        return []
    present = snapshot.present
    return [
        r.StepStarted(
            epoch=epoch,
            at_ms=snapshot.now_ms,
            step=step,
            gang=GANG,
            gang_epoch=gang.epoch,
            workers=tuple(sorted(gang.members)),
            policy=policy,
            devices=sum(present[name].devices for name in gang.members),
        )
    ]


def _due_changes(snapshot: Snapshot, wanted: Sequence[Wanted]) -> list[Wanted]:
    present = snapshot.present
    gang = {want.worker for want in wanted if want.role == "train"}
    gang_changes = gang != snapshot.gang
    # A gang gets its assignments together, so it waits for a member that is taking rollout.
    gang_waits = any(_is_taking(present[name], "rollout") for name in gang)
    due = []
    for want in wanted:
        worker = present[want.worker]
        if want.role == "train":
            change = gang_changes and not gang_waits
        else:
            change = worker.role != want.role and not _is_taking(worker, "train")
        if change and (not want.optional or gates.may_leave(snapshot, worker)):
            due.append(want)
    return due


def _is_taking(worker: WorkerView, role: str) -> bool:
    """Return True if the worker is taking this role now.

    The worker keeps this assignment until it has the role or the deadline passes: its device is not
    free before.
    """
    return worker.role == role and worker.acquired_ms is None


def _all_acquired(snapshot: Snapshot) -> bool:
    present = snapshot.present
    return all(present[name].acquired_ms is not None for name in snapshot.gang)


def _free_slots(state: State, moving: set[str], slots: int) -> Iterator[int]:
    """Yield the slots that no worker reads or will read, lowest first."""
    taken = {worker.slot for worker in state.workers.values()} | {
        worker.assignment.slot
        for name, worker in state.workers.items()
        # A worker that moves frees the slot it was given, once it no longer reads it.
        if worker.assignment is not None and name not in moving
    }
    return (slot for slot in range(slots) if slot not in taken)
