"""Delays of steps: the time from a batch's last group to the start of its step that software takes.
A pure fold of `control`.

Trainer, Kafka and scheduler take it. Left out is the time in which devices, modelled ones, hold the
step up: while a worker of its gang changes its role, or an earlier step goes on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from seamlessflow.scheduler.state.timeline import in_force
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

Span = tuple[int, int]
"""Beginning and end, in milliseconds since the epoch."""
_Step = tuple[str, int]
"""Policy and number."""


@dataclass
class _Delays:
    found_ms: list[int] = field(default_factory=list)
    _ready_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a group of a policy was ready."""
    _batches: dict[_Step, int] = field(default_factory=dict)
    """When the last group of a batch was ready whose step has not begun."""
    _moves: list[tuple[str, Span]] = field(default_factory=list)
    """Changes of role, with the worker."""
    _begun: dict[_Step, r.StepStarted] = field(default_factory=dict)
    _steps: list[tuple[r.StepStarted, Span]] = field(default_factory=list)
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


def step_delays(control: Iterable[Record]) -> list[int]:
    """Return the delay of each step that began, in milliseconds."""
    fold = _Delays()
    for record in in_force(control):
        fold.apply(record)
    return fold.found_ms


def uncovered(whole: Span, spans: Iterable[Span]) -> int:
    """Return how much of a time lies in none of the spans."""
    (at, end), left = whole, 0
    for begin, until in sorted(spans):
        left += max(0, min(begin, end) - at)
        at = max(at, min(until, end))
    return left + max(0, end - at)
