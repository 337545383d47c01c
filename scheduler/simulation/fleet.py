"""Workers of the simulator: they take roles as told and serve samples one at a time.

Driven by `scheduler/simulation/simulator.py`, which gives the time.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from scheduler.state.workers import NO_ROLE
from schemas import records as r
from schemas.records import Record


def nothing_hangs(group_id: str, sample: int, attempt: int) -> bool:
    """No attempt is lost."""
    return False


def nothing_is_filtered(group_id: str) -> bool:
    """No group is dropped."""
    return False


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Workers by name with their tags, and what things cost. Times in milliseconds."""

    workers: Mapping[str, tuple[str, ...]]
    sample_ms: float = 100
    """Worker time of one sample's rollout; a worker serves one at a time."""
    spread: float = 0.0
    """Standard deviation of the logarithm of that time."""
    train_ms: float = 1000
    """Worker time of an optimizer step, shared by the gang."""
    switch_ms: float = 0
    hangs: Callable[[str, int, int], bool] = nothing_hangs
    """Whether an attempt (group, sample, attempt) is never heard of again."""
    filtered: Callable[[str], bool] = nothing_is_filtered
    """Whether the trainer drops the group."""
    seed: int = 0


class World(Protocol):
    """What the parts of a simulation need of it."""

    @property
    def now(self) -> float:
        """Milliseconds since the start."""

    def after(self, delay: float, happen: Callable[[], None]) -> None:
        """Lets something happen later."""

    def append(self, record: Record) -> None:
        """Writes to `control`."""


@dataclass
class Span:
    """A stretch of a worker's time."""

    kind: str
    start: float
    end: float

    def within(self, start: float, end: float) -> float:
        """How much of it lies between `start` and `end`."""
        return max(0.0, min(end, self.end) - max(start, self.start))


@dataclass
class Sample:
    """A sample that is or will be served."""

    group: str
    number: int
    left: float
    """Worker time still needed."""


@dataclass
class SimulatedWorker:
    """One worker."""

    role: str = NO_ROLE
    assignment: int = -1
    sample: Sample | None = None
    since: float = 0.0
    spans: list[Span] = field(default_factory=list)


class SimulatedFleet:
    """All workers and the queue of samples they share."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        self.workers = {name: SimulatedWorker() for name in cluster.workers}
        self.on_sample: Callable[[Sample], None] = lambda sample: None
        """Called when a sample is done."""
        self._cluster = cluster
        self._world = world
        self._queue: deque[Sample] = deque()
        self._random = Random(cluster.seed)

    def issue(self, task: r.Task) -> None:
        """An agent begins a sample, and hangs if the cluster says so."""
        factor = self._random.lognormvariate(0, self._cluster.spread)
        if not self._cluster.hangs(task.group_id, task.sample, task.attempt):
            self._queue.append(Sample(task.group_id, task.sample, self._cluster.sample_ms * factor))

    def assign(self, given: r.RoleAssigned) -> None:
        """The worker leaves what it does and takes the role after the switch."""
        worker = self.workers[given.worker]
        self._interrupt(worker)
        left, worker.role, worker.assignment = worker.role, NO_ROLE, given.assignment
        self._busy(worker, "switch", self._cluster.switch_ms)
        self._world.after(self._cluster.switch_ms, lambda: self._acquire(given, left))

    def train(self, workers: tuple[str, ...], done: Callable[[float], None]) -> None:
        """A gang makes an optimizer step; `done` gets the time it took."""
        took = self._cluster.train_ms / len(workers)
        for name in workers:
            self._busy(self.workers[name], "train", took)
        self._world.after(took, lambda: done(took))

    def serve(self) -> None:
        """Free workers take the next samples."""
        for worker in self.workers.values():
            if worker.role == "rollout" and worker.sample is None and self._queue:
                self._begin(worker, self._queue.popleft())

    def _begin(self, worker: SimulatedWorker, sample: Sample) -> None:
        worker.sample, worker.since = sample, self._world.now

        def finish() -> None:
            if worker.sample is sample:
                self._interrupt(worker, requeue=False)
                self.on_sample(sample)

        self._world.after(sample.left, finish)

    def _interrupt(self, worker: SimulatedWorker, requeue: bool = True) -> None:
        """Ends the sample under way; what is left of it is served by whoever is free next."""
        if worker.sample is None:
            return
        spent = self._world.now - worker.since
        worker.spans.append(Span("rollout", worker.since, self._world.now))
        if requeue:
            left = max(0.0, worker.sample.left - spent)
            self._queue.appendleft(Sample(worker.sample.group, worker.sample.number, left))
        worker.sample = None

    def _busy(self, worker: SimulatedWorker, kind: str, lasting: float) -> None:
        worker.spans.append(Span(kind, self._world.now, self._world.now + lasting))

    def _acquire(self, given: r.RoleAssigned, left: str) -> None:
        worker = self.workers[given.worker]
        if worker.assignment != given.assignment:
            return
        worker.role = given.role
        at_ms, half = round(self._world.now), round(self._cluster.switch_ms / 2)
        if left != NO_ROLE:
            self._world.append(
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
        self._world.append(
            r.RoleAcquired(
                at_ms=at_ms,
                worker=given.worker,
                incarnation=given.incarnation,
                role=given.role,
                assignment=given.assignment,
                took_ms=half,
            )
        )
