"""From wanted roles to assignments: who is told to change, when a step may start, what took too
long. Pure.

Called by `decide.py`. One `RoleAssigned` a change, with the `WorkerAssignment` that
keeps it on `fleet`; the members of a gang get theirs together, under one new gang epoch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.decisions import gates
from scheduler.decisions.policies import Wanted
from scheduler.decisions.snapshot import Snapshot, WorkerView
from scheduler.settings import SchedulerSection, milliseconds
from scheduler.state.state import State
from schemas import records as r
from schemas.topics import PROMPTS

GANG = "train"


@dataclass(frozen=True, slots=True)
class Moves:
    """Changes of role, and the workers for which there was no slot left."""

    assigned: tuple[r.RoleAssigned, ...]
    without_slot: tuple[str, ...]


def timed_out(state: State, now_ms: int) -> list[r.AssignmentTimedOut]:
    """Roles that were not acquired by their deadline. One of a gang breaks the whole gang."""
    return [
        r.AssignmentTimedOut(
            epoch=state.epoch,
            at_ms=now_ms,
            assignment=given.number,
            worker=name,
            role=given.role,
            waited_ms=now_ms - given.assigned_ms,
        )
        for name, worker in state.workers.items()
        if (given := worker.assignment) is not None
        and given.acquired_ms is None
        and not given.lapsed
        and now_ms >= given.deadline_ms
    ]


def moves(
    state: State, snapshot: Snapshot, wanted: Sequence[Wanted], limits: SchedulerSection
) -> Moves:
    """The assignments that lead to what is wanted; none where it is so, or does not pay."""
    due = _due(snapshot, wanted)
    slots = _free_slots(state, {want.worker for want in due})
    number, epoch = state.newest_assignment, state.steps.gang.epoch + 1
    assigned: list[r.RoleAssigned] = []
    without_slot = []
    for want in due:
        slot = next(slots, None) if want.role == "rollout" else None
        if want.role == "rollout" and slot is None:
            without_slot.append(want.worker)
            continue
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
            )
        )
    return Moves(tuple(assigned), tuple(without_slot))


def kept(assigned: r.RoleAssigned) -> r.WorkerAssignment:
    """The assignment as `fleet` keeps it."""
    return r.WorkerAssignment(
        worker=assigned.worker,
        incarnation=assigned.incarnation,
        role=assigned.role,
        slot=assigned.slot,
        epoch=assigned.epoch,
        assignment=assigned.assignment,
        at_ms=assigned.at_ms,
    )


def started(state: State, snapshot: Snapshot, wanted: Sequence[Wanted]) -> list[r.StepStarted]:
    """The step that may start: its batch waits and the whole wanted gang has acquired its role."""
    waiting, gang = state.steps.waiting, state.steps.gang
    training = {want.worker for want in wanted if want.role == "train"}
    if waiting is None or not snapshot.gang or snapshot.gang != training:
        return []
    step, batch = waiting
    if batch.started_epoch == gang.epoch or not _all_acquired(snapshot):
        return []
    return [
        r.StepStarted(
            epoch=state.epoch,
            at_ms=snapshot.now_ms,
            step=step,
            gang=GANG,
            gang_epoch=gang.epoch,
            workers=tuple(sorted(gang.members)),
        )
    ]


def _due(snapshot: Snapshot, wanted: Sequence[Wanted]) -> list[Wanted]:
    present = snapshot.present
    gang = {want.worker for want in wanted if want.role == "train"}
    gang_changes = gang != snapshot.gang
    gang_waits = any(_on_its_way(present[name], "rollout") for name in gang)
    due = []
    for want in wanted:
        worker = present[want.worker]
        if want.role == "train":
            change = gang_changes and not gang_waits
        else:
            change = worker.role != want.role and not _on_its_way(worker, "train")
        if change and (not want.optional or gates.may_leave(snapshot, worker)):
            due.append(want)
    return due


def _on_its_way(worker: WorkerView, role: str) -> bool:
    """Whether it is taking this role just now; until it has it, or is given up on, its device is
    not free and nobody could tell when it is.
    """
    return worker.role == role and worker.acquired_ms is None


def _all_acquired(snapshot: Snapshot) -> bool:
    return all(snapshot.present[name].acquired_ms is not None for name in snapshot.gang)


def _free_slots(state: State, moving: set[str]) -> Iterator[int]:
    """Slots nobody else reads, lowest first."""
    taken = {
        worker.assignment.slot
        for name, worker in state.workers.items()
        if worker.assignment is not None and name not in moving
    }
    return (slot for slot in range(PROMPTS.partitions) if slot not in taken)
