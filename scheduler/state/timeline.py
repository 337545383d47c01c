"""The timeline of a run: the states of each worker over time, and figures, from `control` alone.

A pure fold, during the run or long after. Drawn by `seamlessflow/reports/timeline_chart.py`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.state.ledger import EVAL
from scheduler.state.state import Decision
from schemas import records as r
from schemas.records import Record

ROLLOUT, TRAIN, SWITCHING, PAUSED, WAITING = "rollout", "train", "switching", "paused", "waiting"
"""`paused`: rollout waits for new weights to load. `waiting`: has the role train but no step."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A time that a worker spent in one state; times in milliseconds since the epoch."""

    worker: str
    state: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The end of an optimizer step, with the version that it made."""

    step: int
    version: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The timeline of a run so far."""

    intervals: tuple[Interval, ...]
    steps: tuple[StepEnd, ...]
    idle: Mapping[str, float]
    """Idle share by worker, from the `WorkerUsage` of its processes during training."""
    switches: int
    """Number of completed changes from one role to the other."""
    handed_back: int
    """Number of turns that a change of role interrupted and another worker continued."""
    start_ms: int
    end_ms: int
    training_ms: tuple[int, int]
    """From the first group for training, or of recorded sessions the first step, to the end of the
    last step; else the whole timeline."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Names in order, with numbers in them compared by value."""
        return tuple(sorted({interval.worker for interval in self.intervals}, key=_natural))


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def timeline(records: Iterable[Record]) -> Timeline:
    """Return the timeline of records of `control`, given in log order."""
    fold = _TimelineFold()
    for record in records:
        fold.apply(record)
    return fold.result()


def _idle(usage: Iterable[r.WorkerUsage], begun_ms: int, done_ms: int) -> dict[str, float]:
    """Return idle shares by worker; a report counts as far as it overlaps the training."""
    idle: defaultdict[str, float] = defaultdict(float)
    known: defaultdict[str, float] = defaultdict(float)
    for of in usage:
        share = _overlap(of, begun_ms, done_ms)
        idle[of.worker] += share * of.idle_ms
        known[of.worker] += share * (of.idle_ms + of.decoding_ms + of.training_ms + of.loading_ms)
    return {worker: idle[worker] / all_ms for worker, all_ms in known.items() if all_ms}


def _overlap(of: r.WorkerUsage, begun_ms: int, done_ms: int) -> float:
    length_ms = of.at_ms - of.from_ms
    if length_ms <= 0:
        return float(begun_ms <= of.at_ms <= done_ms)
    inside_ms = min(of.at_ms, done_ms) - max(of.from_ms, begun_ms)
    return max(0, inside_ms) / length_ms


@dataclass
class _TimelineFold:
    epoch: int = 0
    start_ms: int | None = None
    now_ms: int = 0
    states: dict[str, tuple[str, int]] = field(default_factory=dict)
    last_role: dict[str, str] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    steps: list[StepEnd] = field(default_factory=list)
    begun_ms: int | None = None
    usage: list[r.WorkerUsage] = field(default_factory=list)
    switches: int = 0
    handed_back: int = 0

    def apply(self, record: Record) -> None:
        if isinstance(record, r.SchedulerClaimed):
            self.epoch = max(self.epoch, record.epoch)
        if isinstance(record, Decision) and record.epoch < self.epoch:
            return
        at_ms = getattr(record, "at_ms", None)
        if isinstance(at_ms, int):
            self.start_ms = at_ms if self.start_ms is None else self.start_ms
            self.now_ms = max(self.now_ms, at_ms)
        self._apply_role(record)
        self._apply_step(record)
        self._apply_pause(record)

    def result(self) -> Timeline:
        for worker in list(self.states):
            self._enter(worker, None, self.now_ms)
        start_ms = self.start_ms or 0
        begun_ms = start_ms if self.begun_ms is None else self.begun_ms
        done_ms = self.steps[-1].at_ms if self.steps else self.now_ms
        return Timeline(
            intervals=tuple(self.intervals),
            steps=tuple(self.steps),
            idle=_idle(self.usage, begun_ms, done_ms),
            switches=self.switches,
            handed_back=self.handed_back,
            start_ms=start_ms,
            end_ms=self.now_ms,
            training_ms=(begun_ms, done_ms),
        )

    def _apply_role(self, record: Record) -> None:
        match record:
            case r.RoleAssigned():
                self._enter(record.worker, SWITCHING, record.at_ms)
            case r.RoleReleased():
                self.handed_back += record.handed_back
            case r.RoleAcquired():
                state = ROLLOUT if record.role == ROLLOUT else WAITING
                self._enter(record.worker, state, record.at_ms)
                # The first role of a worker, or the same role again, is not a switch.
                before = self.last_role.get(record.worker, record.role)
                self.switches += before != record.role
                self.last_role[record.worker] = record.role
            case r.AssignmentTimedOut():
                self._enter(record.worker, None, record.at_ms)
            case r.WorkerLost() if self._process(record.worker) == record.process:
                self._enter(record.worker, None, record.at_ms)

    def _apply_step(self, record: Record) -> None:
        match record:
            case r.StepStarted():
                self._begin(record.at_ms)
                for worker in record.workers:
                    self._enter(worker, TRAIN, record.at_ms)
            case r.StepCompleted():
                self.steps.append(StepEnd(record.step, record.version, record.at_ms))
                self._end_step(record.at_ms)
            case r.StepSkipped():
                self._end_step(record.at_ms)
            case r.GroupAdmitted() if record.purpose != EVAL:
                self._begin(record.at_ms)
            case r.WorkerUsage():
                self.usage.append(record)

    def _apply_pause(self, record: Record) -> None:
        match record:
            case r.GenerationPaused() if self._state(record.worker) == ROLLOUT:
                self._enter(record.worker, PAUSED, record.at_ms)
            case r.GenerationResumed() if self._state(record.worker) == PAUSED:
                self._enter(record.worker, ROLLOUT, record.at_ms)

    def _begin(self, at_ms: int) -> None:
        self.begun_ms = at_ms if self.begun_ms is None else self.begun_ms

    def _end_step(self, at_ms: int) -> None:
        for worker in list(self.states):
            if self._state(worker) == TRAIN:
                self._enter(worker, WAITING, at_ms)

    def _state(self, worker: str) -> str | None:
        return self.states[worker][0] if worker in self.states else None

    def _process(self, worker: str) -> str | None:
        """Return the process that serves the worker's present state, or None during a switch."""
        match self._state(worker):
            case "rollout" | "paused":
                return ROLLOUT
            case "train" | "waiting":
                return TRAIN
        return None

    def _enter(self, worker: str, state: str | None, at_ms: int) -> None:
        """End the worker's present state and begin another, or none if the worker is lost."""
        before = self.states.pop(worker, None)
        # Clocks of machines differ, so a state may seem to end before it began.
        if before is not None and at_ms > before[1]:
            self.intervals.append(Interval(worker, before[0], before[1], at_ms))
        if state is not None:
            self.states[worker] = (state, at_ms)
