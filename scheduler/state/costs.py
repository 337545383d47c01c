"""What things cost, measured: rolling means over the events on `control`.

A pure fold. All times in milliseconds. Called by `scheduler/state/state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler.state.rolling import Rolling
from schemas import records as r
from schemas.records import Record

_LONGEST_PAUSE_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Measured costs."""

    step: Rolling = field(default_factory=Rolling)
    """Wall time of an optimizer step, up to published weights."""
    train: Rolling = field(default_factory=Rolling)
    """Worker time that training takes a step, over the gang."""
    rollout: Rolling = field(default_factory=Rolling)
    """Worker time that rollout takes a step, over all workers."""
    group: Rolling = field(default_factory=Rolling)
    """From one ready group to the next."""
    switch: Mapping[str, Rolling] = field(default_factory=dict)
    """Leaving the other role and taking this one."""
    speed: Mapping[str, Mapping[str, Rolling]] = field(default_factory=dict)
    """Tokens a second while at work, by role and worker."""
    releasing: Mapping[str, int] = field(default_factory=dict)
    gang_size: int = 1
    decoded_ms: int = 0
    group_ms: int | None = None

    def switch_mean(self, role: str) -> float | None:
        """Mean cost of a switch to the role; None before the first."""
        return self.switch.get(role, Rolling()).mean

    def speed_mean(self, role: str, worker: str) -> float | None:
        """Mean speed of the worker in the role; None before it was measured."""
        return self.speed.get(role, {}).get(worker, Rolling()).mean


def apply(costs: Costs, record: Record) -> Costs:
    """The costs after a record of `control`."""
    match record:
        case r.RoleReleased():
            return replace(costs, releasing={**costs.releasing, record.worker: record.took_ms})
        case r.RoleAcquired():
            return _switched(costs, record)
        case r.GroupReady():
            return _group_ready(costs, record.at_ms)
        case r.StepStarted():
            return replace(costs, gang_size=max(1, len(record.workers)))
        case r.WorkerUsage():
            return _used(costs, record)
        case r.StepCompleted():
            return _step_completed(costs, record.took_ms)
    return costs


def _switched(costs: Costs, record: r.RoleAcquired) -> Costs:
    """A worker that held nothing before did not switch."""
    if record.worker not in costs.releasing:
        return costs
    took = costs.releasing[record.worker] + record.took_ms
    known = costs.switch.get(record.role, Rolling())
    return replace(
        costs,
        switch={**costs.switch, record.role: known.add(took)},
        releasing={name: ms for name, ms in costs.releasing.items() if name != record.worker},
    )


def _group_ready(costs: Costs, at_ms: int) -> Costs:
    if costs.group_ms is None:
        return replace(costs, group_ms=at_ms)
    pause = min(max(0, at_ms - costs.group_ms), _LONGEST_PAUSE_MS)
    return replace(costs, group_ms=at_ms, group=costs.group.add(pause))


def _used(costs: Costs, record: r.WorkerUsage) -> Costs:
    costs = replace(costs, decoded_ms=costs.decoded_ms + record.decoding_ms)
    role = record.process
    busy_ms = record.training_ms if role == "train" else record.decoding_ms
    if busy_ms <= 0 or record.tokens <= 0:
        return costs
    of_role = costs.speed.get(role, {})
    known = of_role.get(record.worker, Rolling())
    speeds = {**of_role, record.worker: known.add(1000 * record.tokens / busy_ms)}
    return replace(costs, speed={**costs.speed, role: speeds})


def _step_completed(costs: Costs, took_ms: int) -> Costs:
    return replace(
        costs,
        step=costs.step.add(took_ms),
        train=costs.train.add(took_ms * costs.gang_size),
        rollout=costs.rollout.add(costs.decoded_ms),
        decoded_ms=0,
    )
