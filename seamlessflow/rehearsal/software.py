"""Time that software takes in a rehearsal: turns' hops and steps' delays. Pure folds.

A hop (`lab/calibration/recorded_run.py`) is software's part in a turn's latency. A turn's way back
is as long, but no record marks its end.

A delay is the time from a batch's last group to its step's start. Trainer, Kafka and scheduler take
it. The time in which modelled devices hold the step up is left out. They do so while a worker in
the gang changes its role, or an earlier step goes on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from seamlessflow.lab.calibration.recorded_run import Hops
from seamlessflow.scheduler.state.timeline import in_force
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

TimeSpan = tuple[int, int]
"""Beginning and end, in milliseconds since the epoch."""
_TrainedStep = tuple[str, int]
"""Policy and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareTime:
    """The time for which a step's sessions and gang wait for software."""

    hops: Hops
    turns: float
    """Mean turn count in a session."""
    step_s: float
    """Seconds in an ideal modelled step, which waits for nothing and so is the shortest.

    With several policies, it is for the policy with the most steps.
    """
    delays_ms: Sequence[int] = ()
    """Each step's delay, from its last group to its start (`step_delays`)."""

    @property
    def delay_ms(self) -> float:
        """A step's mean delay; 0 without one."""
        return fmean(self.delays_ms) if self.delays_ms else 0.0

    @property
    def share(self) -> float:
        """Software's share of a modelled step; 0 without a step."""
        software_ms = 2 * self.turns * self.hops.mean_ms + self.delay_ms
        return software_ms / 1000 / self.step_s if self.step_s else 0.0


def step_delays(control: Iterable[Record]) -> list[int]:
    """Return each begun step's delay, in milliseconds."""
    fold = _Delays()
    for record in in_force(control):
        fold.apply(record)
    return fold.found_ms


def uncovered(whole: TimeSpan, spans: Iterable[TimeSpan]) -> int:
    """Return how much of a time span lies in none of the other spans."""
    (at, end) = whole
    left = 0
    for begin, until in sorted(spans):
        left += max(0, min(begin, end) - at)
        at = max(at, min(until, end))
    return left + max(0, end - at)


@dataclass
class _Delays:
    found_ms: list[int] = field(default_factory=list)
    _ready_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a policy's group was ready."""
    _batches: dict[_TrainedStep, int] = field(default_factory=dict)
    """When a batch's last group was ready, for batches whose step has not begun."""
    _moves: list[tuple[str, TimeSpan]] = field(default_factory=list)
    """Role changes, with the worker."""
    _begun: dict[_TrainedStep, r.StepStarted] = field(default_factory=dict)
    _steps: list[tuple[r.StepStarted, TimeSpan]] = field(default_factory=list)
    """Steps that have ended."""

    def apply(self, record: Record) -> None:
        match record:
            case r.GroupReady():
                self._ready_ms[record.policy, record.group_id] = record.at_ms
            case r.BatchReady(policy=policy):
                ready = [self._ready_ms.get((policy, group)) for group in record.groups]
                times = [ms for ms in ready if ms is not None]
                self._batches[policy, record.step] = max(times, default=record.at_ms)
            case r.RoleReleased() | r.RoleAcquired():
                span = record.at_ms - record.took_ms, record.at_ms
                self._moves.append((record.worker, span))
            case r.StepStarted():
                self._start(record)
            case r.StepCompleted() | r.StepSkipped():
                begun = self._begun.pop((record.policy, record.step), None)
                if begun is not None:
                    self._steps.append((begun, (begun.at_ms, record.at_ms)))

    def _start(self, record: r.StepStarted) -> None:
        step = record.policy, record.step
        self._begun[step] = record
        ready_ms = self._batches.pop(step, None)
        if ready_ms is None:  # a gang that was formed anew starts its step again
            return
        gang = set(record.workers)
        spans = [span for worker, span in self._moves if worker in gang]
        spans += [
            span
            for other, span in self._steps
            if other.policy == record.policy or not gang.isdisjoint(other.workers)
        ]
        self.found_ms.append(uncovered((ready_ms, record.at_ms), spans))
