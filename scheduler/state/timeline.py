"""A run's timeline: each worker's states over time, and figures, only from `control`.

A pure fold, during the run or long after. `lab/timeline` draws it. A run that was stopped and
resumed an hour later did not exist in between. Such a pause belongs to no worker, group or step.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from seamlessflow.scheduler.state.accounts.closed_form import IdealStep, ideal_step
from seamlessflow.scheduler.state.accounts.device_time import (
    DeviceTime,
    Interval,
    TimeWindow,
    device_time,
    divided,
    together,
)
from seamlessflow.scheduler.state.accounts.occupation import Occupation
from seamlessflow.scheduler.state.accounts.waits import Waits
from seamlessflow.scheduler.state.ledger import EVAL, TRAIN
from seamlessflow.scheduler.state.state import SchedulerDecision
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

_Life = tuple[str, ...]
"""Identity of a process: new at each start, so no record outside its life names it."""
_WORKER = (
    r.WorkerJoined
    | r.WorkerUsage
    | r.RoleAcquired
    | r.RoleReleased
    | r.GenerationPaused
    | r.GenerationResumed
    | r.WeightsLoaded
)
"""Records that show a worker's process alive. `WorkerLost` is about a process that is gone."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """An optimizer step's end, with the version that it made."""

    step: int
    version: int
    at_ms: int
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run's timeline so far."""

    intervals: tuple[Interval, ...]
    """Intervals ordered by their ends.

    Rollout and steps are divided by their worker's reports. Intervals with waiting have its
    reasons.
    """
    steps: tuple[StepEnd, ...]
    switches: int
    """Number of completed role changes."""
    handed_back: int
    """Number of turns that a role change interrupted and another worker continued."""
    start_ms: int
    end_ms: int
    training_ms: TimeWindow
    """From the first training group to the last step's end, or the whole timeline.

    With recorded sessions it begins at the first step.
    """
    groups: tuple[tuple[int, str, int], ...]
    """Ready time, policy and latency (since admission, without pauses) for each training group."""
    pauses: tuple[TimeWindow, ...] = ()
    """Times in which none of the run's processes lived."""

    def lived_ms(self, window: TimeWindow | None = None) -> int:
        """Return the window's length without pauses; by default the training's window."""
        return without(window or self.training_ms, self.pauses)

    def device_time(self, window: TimeWindow | None = None) -> dict[str, DeviceTime]:
        """Return each worker's device time in the window; by default the training's window."""
        return device_time(self.intervals, window or self.training_ms)

    def group_ms(self, window: TimeWindow | None = None) -> float | None:
        """Return the mean latency of groups that got ready in the window, by default of all.

        None without a group. Steps of several policies are counted together, and each policy makes
        its steps beside the others. So for them it is 1 / sum(1 / each policy's mean).
        """
        latencies = defaultdict[str, list[int]](list)
        for at_ms, policy, took in self.groups:
            if window is None or window[0] <= at_ms <= window[1]:
                latencies[policy].append(took)
        means = [fmean(took) for took in latencies.values()]
        if not means or min(means) <= 0:
            return min(means, default=None)
        return 1 / sum(1 / mean for mean in means)

    @property
    def steps_made(self) -> int:
        """Number of optimizer steps; a step repeated after a crash counts once."""
        return len({(step.policy, step.step) for step in self.steps})

    @property
    def step_ms(self) -> float | None:
        """An optimizer step's mean time, or None before the first has ended.

        With several policies, it is the time from any policy's step to the next.
        """
        return self.lived_ms() / self.steps_made if self.steps else None

    def ideal_step(self, lag: float) -> IdealStep | None:
        """Return the ideal step for the run's work; None before the first step's end."""
        spent = together(self.device_time().values())
        if not self.steps or not spent.total:
            return None
        devices = spent.total / self.lived_ms()
        return ideal_step(spent, self.steps_made, devices, self.group_ms() or 0.0, lag)

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of policies whose steps have ended, ordered by their first steps."""
        return tuple(dict.fromkeys(step.policy for step in self.steps))

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers' names in order, with numbers in them compared by value."""
        return tuple(sorted({interval.worker for interval in self.intervals}, key=_natural))


def timeline(records: Iterable[Record]) -> Timeline:
    """Return the timeline from `control` records, which come in log order."""
    counting = list(in_force(records))
    fold = _TimelineFold(_pauses(counting))
    for record in counting:
        fold.apply(record)
    return fold.result()


def in_force(records: Iterable[Record]) -> Iterator[Record]:
    """Yield `control` records, except the decisions of deposed schedulers."""
    epoch = 0
    for record in records:
        if isinstance(record, r.SchedulerClaimed):
            epoch = max(epoch, record.epoch)
        if not isinstance(record, SchedulerDecision) or record.epoch >= epoch:
            yield record


def without(window: TimeWindow, paused: Iterable[TimeWindow]) -> int:
    """Return a window's length without the pauses in it."""
    start_ms, end_ms = window
    inside = (max(0, min(end_ms, end) - max(start_ms, start)) for start, end in paused)
    return end_ms - start_ms - sum(inside)


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _pauses(records: Sequence[Record]) -> tuple[TimeWindow, ...]:
    """Return the pauses between `control` records in log order; each has a length.

    A pause lies between two neighbouring records if no worker, trainer or scheduler is seen alive
    both before and after it. A new scheduler must follow.
    """
    claims = [
        number for number, record in enumerate(records) if isinstance(record, r.SchedulerClaimed)
    ]
    if len(claims) < 2:
        return ()
    last = {life: number for number, record in enumerate(records) for life in _lives(record)}
    last |= dict.fromkeys(_lives(records[claims[-1]]), len(records))
    windows = list[TimeWindow]()
    reaches = claims[0]
    now_ms = None
    for number, record in enumerate(records):
        at_ms: int | None = getattr(record, "at_ms", None)
        if at_ms is not None:
            if now_ms is not None and reaches < number and at_ms > now_ms:
                windows.append((now_ms, at_ms))
            now_ms = at_ms if now_ms is None else max(now_ms, at_ms)
        reaches = max([reaches, *(last[life] for life in _lives(record))])
    return tuple(windows)


def _lives(record: Record) -> Iterator[_Life]:
    """Yield the processes that a record shows alive."""
    if isinstance(record, r.SchedulerClaimed | SchedulerDecision):
        yield "scheduler", str(record.epoch)
    if isinstance(record, _WORKER):
        yield "worker", record.worker, record.incarnation
    if isinstance(record, r.LineageStarted | r.StepCommitted | r.StepCompleted):
        yield "trainer", record.policy, record.lineage


@dataclass
class _TimelineFold:
    pauses: tuple[TimeWindow, ...]
    passed: int = 0
    """Number of pauses that are over."""
    start_ms: int | None = None
    now_ms: int = 0
    occupation: Occupation = field(default_factory=Occupation)
    waits: Waits = field(default_factory=Waits)
    last_role: dict[str, str] = field(default_factory=dict)
    steps: list[StepEnd] = field(default_factory=list)
    begun_ms: int | None = None
    usage: defaultdict[tuple[str, str], list[r.WorkerUsage]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Usage reports, by worker and process."""
    admitted: dict[str, int] = field(default_factory=dict)
    groups: dict[tuple[str, str], tuple[int, str, int]] = field(default_factory=dict)
    """Ready groups, by policy and group; a group gets ready for each of its policies."""
    switches: int = 0
    handed_back: int = 0

    def apply(self, record: Record) -> None:
        at_ms = getattr(record, "at_ms", None)
        if isinstance(at_ms, int):
            self._pass(at_ms)
            self.start_ms = at_ms if self.start_ms is None else self.start_ms
            self.now_ms = max(self.now_ms, at_ms)
        self.occupation.apply(record)
        self.waits.apply(record)
        self._apply_role(record)
        self._apply_step(record)
        self._apply_group(record)

    def result(self) -> Timeline:
        start_ms = self.start_ms or 0
        begun_ms = start_ms if self.begun_ms is None else self.begun_ms
        for reports in self.usage.values():
            reports.sort(key=lambda report: report.at_ms)  # clocks are set back now and then
        return Timeline(
            intervals=tuple(
                self.waits.explained(divided(self.occupation.close(self.now_ms), self.usage))
            ),
            steps=tuple(self.steps),
            switches=self.switches,
            handed_back=self.handed_back,
            start_ms=start_ms,
            end_ms=self.now_ms,
            training_ms=(begun_ms, self.steps[-1].at_ms if self.steps else self.now_ms),
            groups=tuple(self.groups.values()),
            pauses=self.pauses,
        )

    def _pass(self, at_ms: int) -> None:
        """Let the workers leave at the beginning of each pause that is over by now."""
        while self.passed < len(self.pauses) and self.pauses[self.passed][1] <= at_ms:
            self.occupation.leave(self.pauses[self.passed][0])
            self.passed += 1

    def _apply_role(self, record: Record) -> None:
        match record:
            case r.RoleReleased():
                self.handed_back += record.handed_back
            case r.RoleAcquired():
                # A worker's first role, or the same role again, is not a switch.
                before = self.last_role.get(record.worker, record.role)
                self.switches += before != record.role
                self.last_role[record.worker] = record.role
            case r.WorkerUsage():
                self.usage[record.worker, record.process].append(record)

    def _apply_step(self, record: Record) -> None:
        match record:
            case r.StepStarted():
                self._begin(record.at_ms)
            case r.StepCompleted():
                self.steps.append(StepEnd(record.step, record.version, record.at_ms, record.policy))

    def _apply_group(self, record: Record) -> None:
        match record:
            case r.GroupAdmitted() if record.purpose != EVAL:
                self._begin(record.at_ms)
                if record.purpose == TRAIN:
                    self.admitted.setdefault(record.group_id, record.at_ms)
            case r.GroupReady() if record.group_id in self.admitted:
                took = without((self.admitted[record.group_id], record.at_ms), self.pauses)
                key = record.policy, record.group_id
                self.groups.setdefault(key, (record.at_ms, record.policy, took))

    def _begin(self, at_ms: int) -> None:
        self.begun_ms = at_ms if self.begun_ms is None else self.begun_ms
