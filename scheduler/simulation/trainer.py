"""The trainer of the simulator: it makes groups of samples, batches of groups, steps of batches.

Driven by `scheduler/simulation/simulator.py`.
"""

from dataclasses import dataclass, field

from scheduler.settings import RunSection
from scheduler.simulation.fleet import (
    ClusterModel,
    RunningSimulation,
    SimulatedFleet,
    SimulatedSample,
)
from schemas import records as r
from schemas.records import Record


@dataclass(eq=False)
class SimulatedTrainer:
    """A trainer that writes the same records to `control` as the real one."""

    _run: RunSection
    _cluster: ClusterModel
    _simulation: RunningSimulation
    _fleet: SimulatedFleet
    staleness: list[int] = field(default_factory=list)
    """Age in optimizer steps of each group's oldest sample, when it was trained."""
    _version: int = 0
    _step: int = 0
    _skipped: int = 0
    _samples: dict[str, set[int]] = field(default_factory=dict)
    _born: dict[str, int] = field(default_factory=dict)
    _ready: list[str] = field(default_factory=list)
    _batch: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._append = self._simulation.append
        self._fleet.on_sample = self._sampled

    def react(self, record: Record) -> None:
        """React to a record of the scheduler."""
        match record:
            case r.GroupAdmitted():
                self._samples[record.group_id] = set()
                self._born[record.group_id] = self._version
            case r.GroupExpired():
                self._expire(record.group_id)
            case r.ProgressStalled(what="refill"):
                self._train_or_skip(record.detail)
            case r.StepStarted():
                self._fleet.train(record.workers, lambda took: self._commit(record.step, took))

    def _sampled(self, sample: SimulatedSample) -> None:
        samples = self._samples.get(sample.group)
        if samples is None:
            return
        samples.add(sample.number)
        if len(samples) == self._run.group_size:
            self._complete(sample.group)

    def _expire(self, group: str) -> None:
        if len(self._samples.get(group, ())) >= self._run.min_group_size:
            self._complete(group)
        elif self._samples.pop(group, None) is not None:
            self._drop(group, "expired")

    def _complete(self, group: str) -> None:
        del self._samples[group]
        if self._cluster.filtered(group):
            self._drop(group, "filtered")
            return
        self._ready.append(group)
        self._append(
            r.GroupReady(
                at_ms=self._now, group_id=group, reward_mean=0, reward_std=0, trainable_tokens=1
            )
        )
        self._announce(self._run.groups_per_step)

    def _drop(self, group: str, reason: str) -> None:
        self._append(r.GroupDropped(at_ms=self._now, group_id=group, reason=reason))

    def _train_or_skip(self, detail: str) -> None:
        if self._ready:
            self._announce(1)
        else:
            self._step += 1
            self._skipped += 1
            self._append(r.StepSkipped(at_ms=self._now, step=self._step - 1, reason=detail))

    def _announce(self, least: int) -> None:
        if self._batch or len(self._ready) < least:
            return
        size = self._run.groups_per_step
        self._batch, self._ready = self._ready[:size], self._ready[size:]
        self._append(
            r.BatchReady(
                at_ms=self._now,
                step=self._step,
                groups=tuple(self._batch),
                trainable_tokens=len(self._batch),
            )
        )

    def _commit(self, step: int, took: float) -> None:
        batch, self._batch = self._batch, []
        self.staleness += [self._version - self._born[group] for group in batch]
        self._version += 1
        self._step = step + 1
        for record in self._step_records(step, batch, round(took)):
            self._append(record)
        # The next batch may have become ready during the step.
        self._announce(self._run.groups_per_step)
        self._end_run()

    def _end_run(self) -> None:
        if self._step - self._skipped == self._run.steps:
            self._append(r.RunFinished(at_ms=self._now, steps=self._run.steps, reason="steps"))

    def _step_records(self, step: int, batch: list[str], took_ms: int) -> list[Record]:
        at_ms, version = self._now, self._version
        return [
            r.StepCommitted(
                at_ms=at_ms,
                step=step,
                lineage="a",
                version=version,
                groups=tuple(r.StepGroup(group_id=group) for group in batch),
            ),
            *(r.GroupConsumed(at_ms=at_ms, group_id=group, step=step) for group in batch),
            published(self._run.policy, version, at_ms),
            r.StepCompleted(at_ms=at_ms, step=step, lineage="a", version=version, took_ms=took_ms),
        ]

    @property
    def _now(self) -> int:
        return round(self._simulation.now)


def published(policy: str, version: int, at_ms: int) -> r.WeightsPublished:
    """Return the record of a new version, without files."""
    return r.WeightsPublished(
        at_ms=at_ms,
        policy=policy,
        version=version,
        step=version,
        lineage="a",
        directory="",
        manifest_sha256="",
    )
