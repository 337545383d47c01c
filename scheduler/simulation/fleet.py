"""The workers of the simulator: they take the assigned roles and serve one sample at a time.

Driven by `scheduler/simulation/simulator.py`, which also keeps the time.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from scheduler.state.workers import NO_ROLE
from schemas import records as r
from schemas.records import Record


@dataclass(frozen=True, kw_only=True)
class ClusterModel:
    """The workers of a cluster with their tags, and its costs. Times in milliseconds."""

    workers: Mapping[str, tuple[str, ...]]
    sample_ms: float = 100
    """Worker time of one sample's rollout."""
    spread: float = 0.0
    """Standard deviation of the logarithm of that time."""
    train_ms: float = 1000
    """Worker time of an optimizer step, divided by the size of the gang."""
    switch_ms: float = 0
    hangs: Callable[[str, int, int], bool] = lambda group, sample, attempt: False
    """Returns True for an attempt (group, sample, attempt) that never ends."""
    filtered: Callable[[str], bool] = lambda group: False
    """Returns True for a group that the trainer drops."""
    seed: int = 0


class RunningSimulation(Protocol):
    """The methods of `Simulation` that its workers and its trainer use."""

    @property
    def now(self) -> float:
        """Milliseconds since the start."""

    def after(self, delay: float, happen: Callable[[], None]) -> None:
        """Call `happen` after `delay` milliseconds."""

    def append(self, record: Record) -> None:
        """Append a record to `control`."""


@dataclass
class BusySpan:
    """A time in which a worker was busy, with its kind: rollout, train or switch."""

    kind: str
    start: float
    end: float

    def within(self, start: float, end: float) -> float:
        """Return how much of it lies between `start` and `end`."""
        return max(0.0, min(end, self.end) - max(start, self.start))


@dataclass
class SimulatedSample:
    """A sample that waits or is being served."""

    group: str
    number: int
    left: float
    """Worker time still needed."""


@dataclass
class SimulatedWorker:
    """A worker: its role, the sample it serves, and the times in which it was busy."""

    role: str = NO_ROLE
    assignment: int = -1
    sample: SimulatedSample | None = None
    since: float = 0.0
    spans: list[BusySpan] = field(default_factory=list)


class SimulatedFleet:
    """All workers, and the queue of samples that they share."""

    def __init__(self, cluster: ClusterModel, simulation: RunningSimulation) -> None:
        self.workers = {name: SimulatedWorker() for name in cluster.workers}
        self.on_sample: Callable[[SimulatedSample], None] = lambda sample: None
        """Called with each sample that ends."""
        self._cluster = cluster
        self._simulation = simulation
        self._queue: deque[SimulatedSample] = deque()
        self._random = Random(cluster.seed)  # nosec B311 # repeatable draws

    def issue(self, task: r.Task) -> None:
        """Queue a sample, unless the cluster says that this attempt never ends."""
        factor = self._random.lognormvariate(0, self._cluster.spread)
        if not self._cluster.hangs(task.group_id, task.sample, task.attempt):
            self._queue.append(
                SimulatedSample(task.group_id, task.sample, self._cluster.sample_ms * factor)
            )

    def assign(self, given: r.RoleAssigned) -> None:
        """Interrupt the worker and let it acquire the role after the switch."""
        worker = self.workers[given.worker]
        self._interrupt(worker)
        left, worker.role, worker.assignment = worker.role, NO_ROLE, given.assignment
        self._busy(worker, "switch", self._cluster.switch_ms)
        self._simulation.after(self._cluster.switch_ms, lambda: self._acquire(given, left))

    def train(self, workers: tuple[str, ...], done: Callable[[float], None]) -> None:
        """Let a gang make an optimizer step, then call `done` with the time it took."""
        took = self._cluster.train_ms / len(workers)
        for name in workers:
            self._busy(self.workers[name], "train", took)
        self._simulation.after(took, lambda: done(took))

    def serve(self) -> None:
        """Give the next samples to free workers."""
        for worker in self.workers.values():
            if worker.role == "rollout" and worker.sample is None and self._queue:
                self._begin(worker, self._queue.popleft())

    def _begin(self, worker: SimulatedWorker, sample: SimulatedSample) -> None:
        worker.sample, worker.since = sample, self._simulation.now

        def finish() -> None:
            if worker.sample is sample:  # else it was interrupted before
                self._interrupt(worker, requeue=False)
                self.on_sample(sample)

        self._simulation.after(sample.left, finish)

    def _interrupt(self, worker: SimulatedWorker, requeue: bool = True) -> None:
        """End the worker's sample; the next free worker serves what is left of it."""
        if worker.sample is None:
            return
        spent = self._simulation.now - worker.since
        worker.spans.append(BusySpan("rollout", worker.since, self._simulation.now))
        if requeue:
            left = max(0.0, worker.sample.left - spent)
            self._queue.appendleft(SimulatedSample(worker.sample.group, worker.sample.number, left))
        worker.sample = None

    def _busy(self, worker: SimulatedWorker, kind: str, lasting: float) -> None:
        worker.spans.append(BusySpan(kind, self._simulation.now, self._simulation.now + lasting))

    def _acquire(self, given: r.RoleAssigned, left: str) -> None:
        worker = self.workers[given.worker]
        if worker.assignment != given.assignment:  # assigned anew during the switch
            return
        worker.role = given.role
        at_ms, half = round(self._simulation.now), round(self._cluster.switch_ms / 2)
        if left != NO_ROLE:
            self._simulation.append(
                r.RoleReleased(
                    at_ms=at_ms,
                    worker=given.worker,
                    incarnation=given.incarnation,
                    role=left,
                    assignment=given.assignment,
                    free_bytes=0,
                    took_ms=half,
                )
            )
        self._simulation.append(
            r.RoleAcquired(
                at_ms=at_ms,
                worker=given.worker,
                incarnation=given.incarnation,
                role=given.role,
                assignment=given.assignment,
                took_ms=half,
            )
        )
