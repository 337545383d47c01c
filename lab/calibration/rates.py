"""A recorded run's rates, as the section `device_model` has them. Pure.

Times for optimizer steps and role changes are a fold of `control`. Decoding times follow from the
turns (`decoding.py`). All workers are taken as alike. A rate that was not seen stays as modelled,
for example a role change's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from seamlessflow.lab.calibration.decoding import decoding_times
from seamlessflow.lab.calibration.recorded_run import RecordedTurn, mean_hop_s
from seamlessflow.scheduler.state.accounts.device_time import TimeWindow
from seamlessflow.scheduler.state.workers import device_count
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, WorkerUsage

_CHANGES = (("rollout", "sleep_s", "train", "take_s"), ("train", "leave_s", "rollout", "wake_s"))
"""The role that a worker leaves, with its rate; then the role that it takes, with its rate."""

_Step = tuple[str, int]
"""Policy and step number: each policy counts its own steps from 0."""


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """A step, from when its gang and its batch are there until its end, in seconds."""

    groups: tuple[str, ...]
    devices: int
    took_s: float
    publish_s: float


@dataclass
class MeasuredTimes:
    """The fold over records that end at `since_ms` or later.

    Its callers leave out deposed schedulers' records.
    """

    since_ms: int = 0
    steps: list[TrainedStep] = field(default_factory=list)
    load_ms: list[int] = field(default_factory=list)
    released_ms: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Release times, by the role that was given up."""
    changed_ms: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the new role, times from assignment to acquisition, for changes from the other role."""
    held: int = 0
    """Turns that were held over new weights, or handed over: their KV was computed again."""
    _devices: dict[str, int] = field(default_factory=dict)
    _assigned_ms: dict[int, int] = field(default_factory=dict)
    _held_ms: dict[str, int] = field(default_factory=dict)
    _batches: dict[_Step, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    _started: dict[_Step, tuple[int, int]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Fold a record in."""
        match record:
            case r.WorkerJoined():
                self._devices[record.worker] = device_count(record)
            case r.GenerationPaused() if record.at_ms >= self.since_ms:
                self.held += record.running
            case r.GenerationResumed() if record.at_ms >= self.since_ms:
                self.load_ms.append(record.paused_ms)
            case r.BatchReady():
                self._batches[record.policy, record.step] = record.at_ms, record.groups
            case r.StepStarted():
                self._start(record)
            case r.StepCompleted():
                self._complete(record)
            case _:
                self._apply_role(record)

    def _apply_role(self, record: Record) -> None:
        match record:
            case r.RoleAssigned():
                self._assigned_ms[record.assignment] = record.at_ms
            case r.RoleReleased() if self._changes(record):
                self.held += record.handed_back
                self.released_ms[record.role].append(record.took_ms)
            case r.RoleAcquired():
                changed = record.worker in self._held_ms
                self._held_ms[record.worker] = record.at_ms
                assigned_ms = self._assigned_ms.pop(record.assignment, None)
                if changed and assigned_ms is not None and record.at_ms >= self.since_ms:
                    self.changed_ms[record.role].append(record.at_ms - assigned_ms)

    def _changes(self, record: r.RoleReleased) -> bool:
        return record.assignment in self._assigned_ms and record.at_ms >= self.since_ms

    def _start(self, record: r.StepStarted) -> None:
        step = record.policy, record.step
        batch_ms, _ = self._batches.get(step, (record.at_ms, ()))
        there_ms = max([batch_ms, *(self._held_ms.get(worker, 0) for worker in record.workers)])
        devices = sum(self._devices.get(worker, 1) for worker in record.workers)
        self._started[step] = min(there_ms, record.at_ms), devices

    def _complete(self, record: r.StepCompleted) -> None:
        step = record.policy, record.step
        if (started := self._started.pop(step, None)) is None:
            return
        begun_ms, devices = started
        _, groups = self._batches.pop(step, (0, ()))
        publish_s = record.metrics.get("publish_s", 0.0)
        took_s = max(0.0, (record.at_ms - begun_ms) / 1000 - publish_s)
        if record.at_ms >= self.since_ms:
            self.steps.append(TrainedStep(groups, devices, took_s, publish_s))


def measured_rates(
    control: Sequence[Record],
    turns: Sequence[RecordedTurn],
    tokens: Mapping[str, int],
    rows: int,
    window: TimeWindow,
) -> dict[str, Any]:
    """Return values for the section.

    `tokens`: by group, prompts included. `rows`: in a full batch. Only records within the window
    count.
    """
    since_ms, until_ms = window
    usage = [
        report
        for report in control
        if isinstance(report, WorkerUsage)
        and since_ms <= report.from_ms
        and report.at_ms <= until_ms
    ]
    times = step_times(control, since_ms + 1)
    held = times.held * fmean(turn.prompt + turn.sampled / 2 for turn in turns) if turns else 0.0
    decoding = decoding_times(usage, turns, rows, mean_hop_s(turns), held)
    rates = {} if decoding is None else decoding.rates()
    section: dict[str, Any] = {}
    line = training_line(times.steps, tokens)
    if line is not None:
        section["step_s"], train_s = line
        section["publish_s"] = fmean(step.publish_s for step in times.steps)
        rates |= {"train_s": train_s, "train_context_s": 0.0}
    return {"rates": rates | _moves(times), **section}


def step_times(records: Iterable[Record], since_ms: int = 0) -> MeasuredTimes:
    """Return the fold over `control` records, given in log order."""
    fold = MeasuredTimes(since_ms)
    for record in records:
        fold.apply(record)
    return fold


def training_line(
    steps: Sequence[TrainedStep], tokens: Mapping[str, int]
) -> tuple[float, float] | None:
    """Return a step's fixed seconds and a token's device seconds, by least squares.

    `tokens`: by group, prompts included. None without a step whose groups are known.
    """
    counted = [step for step in steps if sum(tokens.get(group, 0) for group in step.groups)]
    if not counted:
        return None
    took_s = np.array([step.took_s for step in counted])
    share = np.array(
        [sum(tokens.get(group, 0) for group in step.groups) / step.devices for step in counted]
    )
    varies = float(np.var(share))
    slope = float(np.cov(share, took_s, bias=True)[0, 1]) / varies if varies > 0 else 0.0
    # Neither part may be negative. If one is 0, it is exactly 0, without a rounding error.
    most = fmean(took_s) / fmean(share)
    if slope >= most:
        return 0.0, most
    return fmean(took_s) - max(slope, 0.0) * fmean(share), max(slope, 0.0)


def _moves(times: MeasuredTimes) -> dict[str, float]:
    """Return the times for new weights and role changes, if there were any."""
    moves = {}
    if times.load_ms:
        moves["load_s"] = fmean(times.load_ms) / 1000
    for role, release, to, acquire in _CHANGES:
        if changed_ms := times.changed_ms[to]:
            released_ms = times.released_ms[role]
            moves[release] = fmean(released_ms) / 1000 if released_ms else 0.0
            moves[acquire] = max(0.0, fmean(changed_ms) / 1000 - moves[release])
    return moves
