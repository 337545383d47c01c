"""The workers' occupation: each worker's state over time, folded from `control`.

A worker is present from when its first process joins until its last is lost. Without a role it
waits, also while it starts with its first role. Called by `scheduler/state/timeline.py`.
"""

from dataclasses import dataclass, field

from seamlessflow.scheduler.state.accounts.device_time import (
    LOADING,
    ROLLOUT,
    SWITCHING,
    TRAINING,
    WAITING,
    Interval,
)
from seamlessflow.scheduler.state.steps import publish_ms
from seamlessflow.scheduler.state.workers import device_count
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_SERVED_BY = {ROLLOUT: "rollout", LOADING: "rollout", TRAINING: "train"}
"""Process that serves each state; the other states need none."""


@dataclass(slots=True)
class _Present:
    """A worker that is present, with its state and when that began."""

    state: str
    since_ms: int
    devices: int = 1
    processes: dict[str, str] = field(default_factory=dict)
    """Incarnation by process."""
    starting: set[str] = field(default_factory=set)
    """Processes that have had no role yet."""
    had_role: bool = False

    def starts_with(self, role: str) -> bool:
        """Return whether a role is the first for this worker, or for its rollout process.

        An engine is loaded with its first role; a training process is ready when it takes over.
        """
        return role in self.starting and (role == ROLLOUT or not self.had_role)


@dataclass
class Occupation:
    """The fold; `close` ends it. Decisions from older epochs must not get here."""

    intervals: list[Interval] = field(default_factory=list)
    _present: dict[str, _Present] = field(default_factory=dict)
    _gangs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Workers in the current step, by policy."""

    def apply(self, record: Record) -> None:
        """Fold a record in."""
        match record:
            case r.WorkerJoined():
                self._joined(record)
            case r.WorkerLost():
                self._lost(record)
            case r.RoleAssigned():
                present = self._present.get(record.worker)
                starts = present is not None and present.starts_with(record.role)
                self._enter(record.worker, WAITING if starts else SWITCHING, record.at_ms)
            case r.RoleAcquired():
                state = ROLLOUT if record.role == ROLLOUT else WAITING
                self._enter(record.worker, state, record.at_ms)
                self._present[record.worker].had_role = True
                self._present[record.worker].starting.discard(record.role)
            case r.RoleReleased() if self._served_by(record.worker) == record.role:
                self._enter(record.worker, WAITING, record.at_ms)  # given up unasked
            case r.AssignmentTimedOut() if self._state(record.worker) == SWITCHING:
                self._enter(record.worker, WAITING, record.at_ms)
            case r.GenerationPaused() if self._state(record.worker) == ROLLOUT:
                self._enter(record.worker, LOADING, record.at_ms)
            case r.GenerationResumed() if self._state(record.worker) == LOADING:
                self._enter(record.worker, ROLLOUT, record.at_ms)
            case r.StepStarted():
                self._gangs[record.policy] = record.workers
                for worker in record.workers:
                    self._enter(worker, TRAINING, record.at_ms)
            case r.StepCompleted():
                self._end_step(record.policy, record.at_ms, publish_ms(record))
            case r.StepSkipped():
                self._end_step(record.policy, record.at_ms)

    def leave(self, at_ms: int) -> None:
        """End everything under way: none of the run's processes lives any more."""
        for name in list(self._present):
            self._leave(name, at_ms)
        self._gangs.clear()

    def close(self, at_ms: int) -> list[Interval]:
        """Return all intervals ordered by their ends; those under way end now."""
        self.leave(at_ms)
        return self.intervals

    def _joined(self, record: r.WorkerJoined) -> None:
        if record.worker not in self._present:
            self._enter(record.worker, WAITING, record.at_ms)
        present = self._present[record.worker]
        if present.processes.get(record.process) != record.incarnation:
            present.starting.add(record.process)
        present.processes[record.process] = record.incarnation
        devices = device_count(record)
        if devices != present.devices:
            self._end_interval(record.worker, present, record.at_ms)
            present.devices = devices

    def _lost(self, record: r.WorkerLost) -> None:
        present = self._present.get(record.worker)
        if present is None:
            return
        # The loss of an earlier incarnation does not concern the current one.
        if present.processes.get(record.process, record.incarnation) != record.incarnation:
            return
        present.processes.pop(record.process, None)
        if not present.processes:
            self._leave(record.worker, record.at_ms)
        elif self._served_by(record.worker) == record.process:
            self._enter(record.worker, WAITING, record.at_ms)

    def _end_step(self, policy: str, at_ms: int, wrote_ms: int = 0) -> None:
        """End the policy's step; its last `wrote_ms` were for writing weights."""
        for worker in self._gangs.pop(policy, ()):
            if self._state(worker) == TRAINING:
                if wrote_ms > 0:
                    self._enter(worker, LOADING, at_ms - wrote_ms)
                self._enter(worker, WAITING, at_ms)

    def _state(self, worker: str) -> str | None:
        present = self._present.get(worker)
        return present.state if present else None

    def _served_by(self, worker: str) -> str | None:
        return _SERVED_BY.get(self._state(worker) or "")

    def _enter(self, worker: str, state: str, at_ms: int) -> None:
        """End the worker's current state and begin another."""
        present = self._present.setdefault(worker, _Present(state, at_ms))
        if present.state != state:
            self._end_interval(worker, present, at_ms)
            present.state = state

    def _leave(self, worker: str, at_ms: int) -> None:
        self._end_interval(worker, self._present.pop(worker), at_ms)

    def _end_interval(self, worker: str, present: _Present, at_ms: int) -> None:
        # Machines' clocks differ: an interval that seems to end before it began has no length.
        if at_ms > present.since_ms:
            interval = Interval(worker, present.state, present.since_ms, at_ms, present.devices)
            self.intervals.append(interval)
            present.since_ms = at_ms
