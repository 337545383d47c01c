"""Measured costs: rolling means of times and speeds, folded from `control`.

A pure fold. All times in milliseconds. Called by `scheduler/state/state.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.scheduler.state.steps import publish_ms
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

WINDOW = 16
_LONGEST_PAUSE_MS = 600_000
"""Bound on a pause between groups or batches, so that one outage does not dominate the mean."""


@dataclass(frozen=True, slots=True)
class Rolling:
    """The last `WINDOW` measurements, newest last."""

    values: tuple[float, ...] = ()

    def add(self, value: float) -> "Rolling":
        """Return the measurements with one more."""
        return Rolling((*self.values, value)[-WINDOW:])

    @property
    def mean(self) -> float | None:
        """Mean, or None before the first measurement."""
        return sum(self.values) / len(self.values) if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The rolling means, and the state to continue them."""

    step: Rolling = field(default_factory=Rolling)
    """An optimizer step's wall time, until its weights are published."""
    train: Rolling = field(default_factory=Rolling)
    """Device time that a step takes until its weights are written, summed over the gang.

    It includes waiting for the slowest member, since it predicts how long steps take.
    """
    rollout: Rolling = field(default_factory=Rolling)
    """Device time that a step takes for rollout in full batches, summed over all workers."""
    load: Rolling = field(default_factory=Rolling)
    """Device time that a step takes for new weights, summed over all workers.

    It is spent on writing, loading, and recomputing keys and values.
    """
    group: Rolling = field(default_factory=Rolling)
    """Time from one ready group to the next."""
    batch: Rolling = field(default_factory=Rolling)
    """Time from one announced batch to the next."""
    switch: Mapping[str, Rolling] = field(default_factory=dict)
    """Time to release the other role and acquire this one, by role."""
    speed: Mapping[str, Mapping[str, Rolling]] = field(default_factory=dict)
    """Tokens per second of busy time, by role and worker."""
    releasing: Mapping[str, int] = field(default_factory=dict)
    """Duration of each worker's last release, kept until its next acquisition."""
    gang_size: int = 1
    """Number of devices in the gang."""
    decoded_ms: int = 0
    """Rollout time in full batches since the last completed step, summed over devices."""
    loading_ms: int = 0
    """Loading time since the last completed step, summed over devices."""
    group_ms: int | None = None
    """When the last group got ready."""
    batch_ms: int | None = None
    """When the last batch was announced."""

    def switch_mean(self, role: str) -> float | None:
        """Return the mean cost of switching to the role, or None before the first switch."""
        return self.switch.get(role, Rolling()).mean

    def speed_means(self, role: str) -> dict[str, float]:
        """Return the mean speed in the role for each worker whose speed was measured."""
        speeds = self.speed.get(role, {})
        return {
            worker: sum(rolling.values) / len(rolling.values) for worker, rolling in speeds.items()
        }


def apply(costs: Costs, record: Record, devices: Mapping[str, int]) -> Costs:
    """Return the costs after a `control` record; `devices`: device count by worker."""
    match record:
        case r.RoleReleased():
            return replace(costs, releasing={**costs.releasing, record.worker: record.took_ms})
        case r.RoleAcquired():
            return _switched(costs, record)
        case r.GroupReady():
            return _group_ready(costs, record.at_ms)
        case r.BatchReady():
            return _batch_ready(costs, record.at_ms)
        case r.StepStarted():
            size = sum(devices.get(worker, 1) for worker in record.workers)
            return replace(costs, gang_size=max(1, size))
        case r.WorkerUsage():
            return _used(costs, record, devices.get(record.worker, 1))
        case r.GenerationResumed():
            paused_ms = record.paused_ms * devices.get(record.worker, 1)
            return replace(costs, loading_ms=costs.loading_ms + paused_ms)
        case r.StepCompleted():
            return _step_completed(costs, record)
    return costs


def _switched(costs: Costs, record: r.RoleAcquired) -> Costs:
    """Add a switch, unless the worker held no role before."""
    if record.worker not in costs.releasing:
        return costs
    # A switch is two records: releasing the old role, then acquiring the new one.
    took = costs.releasing[record.worker] + record.took_ms
    rolling = costs.switch.get(record.role, Rolling())
    return replace(
        costs,
        switch={**costs.switch, record.role: rolling.add(took)},
        releasing={name: ms for name, ms in costs.releasing.items() if name != record.worker},
    )


def _group_ready(costs: Costs, at_ms: int) -> Costs:
    if costs.group_ms is None:
        return replace(costs, group_ms=at_ms)
    return replace(costs, group_ms=at_ms, group=costs.group.add(_between(costs.group_ms, at_ms)))


def _batch_ready(costs: Costs, at_ms: int) -> Costs:
    if costs.batch_ms is None:
        return replace(costs, batch_ms=at_ms)
    return replace(costs, batch_ms=at_ms, batch=costs.batch.add(_between(costs.batch_ms, at_ms)))


def _between(before_ms: int, at_ms: int) -> int:
    return min(max(0, at_ms - before_ms), _LONGEST_PAUSE_MS)


def _used(costs: Costs, record: r.WorkerUsage, devices: int) -> Costs:
    # A worker from an older release does not report `full_batch_ms`.
    decoded_ms = (record.full_batch_ms or record.decoding_ms) * devices
    costs = replace(
        costs,
        decoded_ms=costs.decoded_ms + decoded_ms,
        loading_ms=costs.loading_ms + record.recomputing_ms * devices,
    )
    role = record.process
    busy_ms = record.training_ms if role == "train" else record.decoding_ms
    if busy_ms <= 0 or record.tokens <= 0:
        return costs
    of_role = costs.speed.get(role, {})
    rolling = of_role.get(record.worker, Rolling())
    speeds = {**of_role, record.worker: rolling.add(1000 * record.tokens / busy_ms)}
    return replace(costs, speed={**costs.speed, role: speeds})


def _step_completed(costs: Costs, record: r.StepCompleted) -> Costs:
    wrote_ms = publish_ms(record)
    trained_ms = max(0, record.took_ms - wrote_ms)
    return replace(
        costs,
        step=costs.step.add(record.took_ms),
        train=costs.train.add(trained_ms * costs.gang_size),
        rollout=costs.rollout.add(costs.decoded_ms),
        load=costs.load.add(costs.loading_ms + wrote_ms * costs.gang_size),
        decoded_ms=0,
        loading_ms=0,
    )
