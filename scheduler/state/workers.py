"""The workers, their processes, and the roles that they were assigned and hold.

A pure fold over `control`. A worker is one id; each of its processes (`rollout`, `train`) serves
the role with the same name. Only a worker's newest assignment counts. Called by
`scheduler/state/state.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from seamlessflow.infra.worker.tags import ROLES, SHARED
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

NO_ROLE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A role assigned to a worker; times in milliseconds since the epoch."""

    number: int
    role: str
    incarnation: str
    slot: int | None
    gang_epoch: int
    assigned_ms: int
    deadline_ms: int
    acquired_ms: int | None = None
    lapsed: bool = False
    """True if the role was not acquired in time.

    Its process may still be taking the device. The device is free for another role only once the
    process has released this role or is lost.
    """


@dataclass(frozen=True, slots=True)
class RoleFailures:
    """The number of times in a row that a role was not acquired, and the last time."""

    count: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has joined and is not lost."""

    incarnation: str
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker with at least one process that has joined and is not lost."""

    processes: Mapping[str, Process] = field(default_factory=dict)
    assignment: Assignment | None = None
    held: str = NO_ROLE
    slot: int | None = None
    """Slot of `prompts` that its rollout process reads, until it has released its role."""
    failures: Mapping[str, RoleFailures] = field(default_factory=dict)
    """Failures to acquire a role, by role."""
    devices: int = 1
    """Its device count, all on one node. A role always moves them all."""
    policy: str = ""
    """Policy in its last assignment."""

    # Cached: each decision reads them for each of a thousand workers.
    @cached_property
    def tags(self) -> frozenset[str]:
        """Roles that its processes were started for."""
        return _union(tuple([process.tags for process in self.processes.values()]))

    @cached_property
    def roles(self) -> frozenset[str]:
        """Roles among its tags for which it has a process."""
        return self.tags.intersection(self.processes)

    @property
    def shared(self) -> bool:
        """True if the run's policies share it in turns."""
        return any(SHARED in process.tags for process in self.processes.values())

    @property
    def role(self) -> str:
        """Role it has or is taking."""
        assignment = self.assignment
        return NO_ROLE if assignment is None or assignment.lapsed else assignment.role


Workers = Mapping[str, Worker]


def apply(workers: Workers, record: Record) -> Workers:
    """Return the workers after a `control` record."""
    match record:
        case r.WorkerJoined():
            before = workers.get(record.worker, Worker())
            process = Process(record.incarnation, record.tags)
            processes = {**before.processes, record.process: process}
            devices = device_count(record)
            joined = replace(before, processes=processes, devices=devices)
            return {**workers, record.worker: joined}
        case r.WorkerLost():
            return _changed(workers, record.worker, lambda worker: _lost(worker, record))
        case r.RoleAssigned():
            return _changed(workers, record.worker, lambda worker: _assigned(worker, record))
        case r.RoleAcquired():
            return _changed(workers, record.worker, lambda worker: _acquired(worker, record))
        case r.RoleReleased():
            return _changed(workers, record.worker, lambda worker: _released(worker, record))
        case r.AssignmentTimedOut():
            return _changed(workers, record.worker, lambda worker: _timed_out(worker, record))
    return workers


@cache
def _union(tags: tuple[tuple[str, ...], ...]) -> frozenset[str]:
    """Return all roles among the tags; cached, since most workers are alike."""
    return frozenset().union(*tags).intersection(ROLES)


def device_count(record: r.WorkerJoined | r.WorkerHeartbeat) -> int:
    """Return how many devices the worker has; 1 if it names none."""
    return max(1, len(record.devices))


def _changed(workers: Workers, name: str, change: Callable[[Worker], Worker]) -> Workers:
    if name not in workers:
        return workers
    changed = change(workers[name])
    if changed.processes:
        return {**workers, name: changed}
    return {other: worker for other, worker in workers.items() if other != name}


def _lost(worker: Worker, record: r.WorkerLost) -> Worker:
    process = worker.processes.get(record.process)
    # The loss of an earlier incarnation does not concern the current one.
    if process is None or process.incarnation != record.incarnation:
        return worker
    left = {name: other for name, other in worker.processes.items() if name != record.process}
    assignment = worker.assignment
    return replace(
        worker,
        processes=left,
        assignment=None
        if assignment is not None and assignment.role == record.process
        else assignment,
        held=NO_ROLE if worker.held == record.process else worker.held,
        slot=None if record.process == "rollout" else worker.slot,
    )


def _assigned(worker: Worker, record: r.RoleAssigned) -> Worker:
    assignment = Assignment(
        number=record.assignment,
        role=record.role,
        incarnation=record.incarnation,
        slot=record.slot,
        gang_epoch=record.gang_epoch,
        assigned_ms=record.at_ms,
        deadline_ms=record.deadline_ms,
    )
    return replace(worker, assignment=assignment, policy=record.policy)


def _acquired(worker: Worker, record: r.RoleAcquired) -> Worker:
    assignment = worker.assignment
    if record.role == "rollout":
        worker = replace(worker, slot=record.slot)
    if assignment is None or (assignment.number, assignment.role) != (
        record.assignment,
        record.role,
    ):
        return worker
    failures = {
        role: failure for role, failure in worker.failures.items() if role != assignment.role
    }
    acquired = replace(assignment, acquired_ms=record.at_ms, lapsed=False)
    return replace(worker, assignment=acquired, held=assignment.role, failures=failures)


def _released(worker: Worker, record: r.RoleReleased) -> Worker:
    assignment = worker.assignment
    left = replace(worker, held=NO_ROLE) if worker.held == record.role else worker
    if record.role == "rollout":
        left = replace(left, slot=None)
    if assignment is None or (assignment.number, assignment.role) != (
        record.assignment,
        record.role,
    ):
        return left
    # Given up unasked, or after a time-out: from now on the device is free for any role.
    return replace(left if assignment.lapsed else _failed(left, record.at_ms), assignment=None)


def _timed_out(worker: Worker, record: r.AssignmentTimedOut) -> Worker:
    assignment = worker.assignment
    if (
        assignment is None
        or assignment.number != record.assignment
        or assignment.acquired_ms is not None
    ):
        return worker
    return _failed(worker, record.at_ms)


def _failed(worker: Worker, at_ms: int) -> Worker:
    """Let the assignment lapse. A late `RoleAcquired` for it still counts."""
    assignment = worker.assignment
    if assignment is None:
        return worker
    before = worker.failures.get(assignment.role, RoleFailures(0, 0))
    failures = {**worker.failures, assignment.role: RoleFailures(before.count + 1, at_ms)}
    lapsed = replace(assignment, lapsed=True, acquired_ms=None)
    return replace(worker, assignment=lapsed, failures=failures)
