"""A step's measured work: R, T and their costs from `control` records. Pure.

They come from the device-time accounts (docs/scheduling/device-time.md). `seamlessflow plan` calls
this.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import fmean

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.scheduler.state.accounts.closed_form import StepWork
from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    LOADING,
    RECOMPUTING,
    TRAINING,
    DeviceTime,
    together,
)
from seamlessflow.scheduler.state.timeline import in_force, timeline
from seamlessflow.scheduler.state.workers import device_count
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

LEAST_STEPS = 2


class TooFewSteps(SeamlessFlowError):
    """A log has too few optimizer steps to measure their work."""

    lasting = True

    def __init__(self, steps: int) -> None:
        self.steps = steps
        super().__init__(
            f"control has {steps} completed optimizer steps with work in them, a plan needs "
            f"{LEAST_STEPS}; give --config or --rollout-s, --train-s and --devices instead"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A log's mean step, in seconds, and the cluster that made it."""

    work: StepWork
    steps: int
    step_s: float
    spent: DeviceTime
    devices: int
    """All workers' devices."""
    gang: int
    """Devices that trained together, in most steps."""
    unit: int
    """Devices in a worker; the most frequent count."""
    changes: bool
    """True if a worker took both roles."""
    lag: int | None
    """As `run.lag`, if a trainer recorded it."""

    def divided(self, scale: float) -> "MeasuredStep":
        """Return a rehearsal's step in the time that the modelled devices would take."""
        times = {part.name: getattr(self.work, part.name) / scale for part in fields(self.work)}
        return replace(self, work=StepWork(**times), step_s=self.step_s / scale)


@dataclass
class _Workers:
    """The fold over the workers' devices, gangs and role changes."""

    devices: dict[str, int] = field(default_factory=dict)
    took_ms: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Role-change times, by the role that was taken."""
    first_ms: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Times of each process's first change, in which it also starts its engine or model."""
    roles: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gangs: Counter[int] = field(default_factory=Counter)
    """Step counts, by how many devices the gang had."""
    lag: int | None = None
    _left_ms: dict[str, int] = field(default_factory=dict)
    _changed: set[tuple[str, str, str]] = field(default_factory=set)
    """Processes that had a role before: worker, incarnation and role."""

    @property
    def switch_ms(self) -> float:
        """Return the mean time for a change to training and back.

        A process's first change is left out, unless there are no others.
        """
        roles = self.took_ms.keys() | self.first_ms.keys()
        return sum(fmean(self.took_ms[role] or self.first_ms[role]) for role in sorted(roles))

    def apply(self, record: Record) -> None:
        match record:
            case r.WorkerJoined():
                self.devices[record.worker] = device_count(record)
            case r.RoleReleased():
                self._left_ms[record.worker] = record.took_ms
            case r.RoleAcquired():
                self.roles[record.worker].add(record.role)
                left_ms = self._left_ms.pop(record.worker, None)
                process = record.worker, record.incarnation, record.role
                if left_ms is not None:
                    times = self.took_ms if process in self._changed else self.first_ms
                    times[record.role].append(left_ms + record.took_ms)
                self._changed.add(process)
            case r.StepStarted() if record.workers:
                devices = sum(self.devices.get(name, 1) for name in record.workers)
                self.gangs[record.devices or devices] += 1
            case r.LineageStarted() if record.settings:
                self.lag = json.loads(record.settings).get("run", {}).get("lag")


def measured_step(records: Sequence[Record], warm_up: int = 0) -> MeasuredStep:
    """Return the training's mean step. Raises `TooFewSteps`.

    A simulation is measured after its first `warm_up` steps. A recorded run is measured as a whole,
    since all work that it began belongs to its steps.
    """
    history = timeline(records)
    workers = _workers(records)
    steps = history.steps_made - warm_up
    window = history.training_ms
    if warm_up and steps > 0:
        window = (history.steps[warm_up - 1].at_ms, window[1])
    spent = together(history.device_time(window).values())
    if steps < LEAST_STEPS or not spent.useful or not workers.devices:
        raise TooFewSteps(steps if spent.useful else 0)
    devices = sum(workers.devices.values())
    unit, _ = Counter(workers.devices.values()).most_common(1)[0]
    return MeasuredStep(
        work=StepWork(
            rollout=spent.subtotal(DECODING) / steps / 1000,
            train=spent.subtotal(TRAINING) / steps / 1000,
            switch=workers.switch_ms / 1000,
            load=spent.subtotal(LOADING, RECOMPUTING) / steps / devices / 1000,
            latency=(history.group_ms(window if warm_up else None) or 0.0) / 1000,
        ),
        steps=steps,
        step_s=history.lived_ms(window) / steps / 1000,
        spent=spent,
        devices=devices,
        gang=workers.gangs.most_common(1)[0][0] if workers.gangs else devices,
        unit=unit,
        changes=any(len(roles) > 1 for roles in workers.roles.values()),
        lag=workers.lag,
    )


def _workers(records: Iterable[Record]) -> _Workers:
    workers = _Workers()
    for record in in_force(records):
        workers.apply(record)
    return workers
