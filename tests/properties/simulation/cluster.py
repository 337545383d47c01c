"""A small cluster in one thread: agents, managers and workers, their starts, ends and moves.

`simulation.py` decides when each of these happens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights, Record, Sampling
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS
from tests.builders.records import control, fleet
from tests.properties.choices import Choices
from tests.properties.simulation.agents import Agent
from tests.properties.simulation.callers import AGE_MS, IDLE_MS, POLICY
from tests.properties.simulation.engine import Generation, RecordedEngine
from tests.properties.simulation.gateway import Gateway
from tests.properties.simulation.managers import Group, SteppedManager
from tests.properties.simulation.model_answers import author
from tests.properties.simulation.topics import Topics
from tests.properties.simulation.workers import Worker

_BEGINNING_MS = 1_000_000
_STRICTNESS = ("arguments", "exact", "content", "ids")
_CONTEXTS = (400, 400, 400, 90)
_MANAGERS = 3
_WORKERS = 3


@dataclass
class Parts:
    """The parts of a simulation, which a fault replaces."""

    manager: Callable[..., SteppedManager] = SteppedManager
    engine: Callable[..., RecordedEngine] = RecordedEngine
    rules: Callable[[], UsedRules] = UsedRules
    """Rules of a worker that end turns early."""


@dataclass
class Cluster:
    """Sessions on `partitions` partitions. `engine_heard` are called with requests to engines."""

    choices: Choices
    renderer: Renderer
    agents_wanted: int
    parts: Parts = field(default_factory=Parts)
    topics: Topics = field(default_factory=Topics)
    gateway: Gateway = field(default_factory=Gateway)
    generations: list[Generation] = field(default_factory=list)
    engine_heard: list[Callable[[Generation], None]] = field(default_factory=list)
    now_ms: int = _BEGINNING_MS
    version: int = 0

    def __post_init__(self) -> None:
        choices = self.choices
        self._numbers = count(1)
        self.partitions = 1 + choices.below(2)
        self.policy = self._policy()
        self._write = author(self.renderer, choices)
        self.topics.append(FLEET.name, 0, self.policy)
        self.group = Group()
        self.workers = [self._worker(f"w{number}", number) for number in range(_WORKERS)]
        for worker in self.workers:
            worker.acquire(next(self._numbers))
            worker.beat()
        self.managers = [self._manager(f"m{number}") for number in range(_MANAGERS)]
        self._moving: dict[int, tuple[SteppedManager, SteppedManager]] = {}
        """Next owner, and the owner that must first release it, by partition."""
        for partition in range(self.partitions):
            self._give(partition, choices.pick(self.managers))
        self.agents = [self._agent(number) for number in range(self.agents_wanted)]

    def clock(self) -> int:
        """Return the time in milliseconds."""
        return self.now_ms

    def events(self, partition: int) -> list[Record]:
        """Return the event log of a partition."""
        return [received.record for received in self.topics.records[SESSIONS.name, partition]]

    def _agent(self, number: int) -> Agent:
        partition, acts = self.choices.below(self.partitions), 3 + self.choices.below(8)
        agent = Agent(f"s{number}", partition, self.topics, self.gateway, self._numbers, self.clock)
        agent.acts_left = acts
        if self.choices.one_in(4):
            agent.terms = r.SessionTerms(policy=POLICY, max_age_ms=AGE_MS, max_idle_ms=IDLE_MS)
            agent.lives = 1 + self.choices.below(2)
        return agent

    def _policy(self) -> PolicyWeights:
        return fleet.weights(
            policy=POLICY,
            tokenizer_hash=self.renderer.hash,
            max_context=self.choices.pick(_CONTEXTS),
            overrides=Sampling(temperature=1.0),
            train_inexact=self.choices.one_in(4),
            train_undelivered=self.choices.one_in(2),
            siblings="all" if self.choices.one_in(3) else "continued",
            strictness=self.choices.pick(_STRICTNESS),
        )

    def _worker(self, name: str, slot: int, incarnation: int = 0) -> Worker:
        engine = self.parts.engine(self.version, self._write, self._numbers, self._asked)
        return Worker(
            name,
            incarnation,
            slot,
            self.topics,
            engine,
            self.renderer,
            self.policy,
            self.clock,
            self.parts.rules(),
        )

    def _asked(self, asked: Generation) -> None:
        self.generations.append(asked)
        for heard in self.engine_heard:
            heard(asked)

    def _restart(self, number: int) -> None:
        old = self.workers[number]
        worker = self._worker(old.name, old.slot, old.incarnation + 1)
        self.workers[number] = worker
        worker.acquire(next(self._numbers))
        worker.beat()

    def _manager(self, name: str) -> SteppedManager:
        return self.parts.manager(name, self.topics, self.group, self.renderer, self.clock)

    def _end_manager(self, manager: SteppedManager) -> None:
        manager.kill(self.choices)
        number = self.managers.index(manager)
        for worker in self.workers:
            if worker.alive:
                worker.beat()
        self.managers[number] = self._manager(f"m{next(self._numbers)}")
        self._expel(manager)

    def _expel(self, manager: SteppedManager) -> None:
        """Give its partitions to other managers without asking it."""
        others = [other for other in self.managers if other is not manager and other.awake]
        for partition, owner in list(self.group.owners.items()):
            if owner is manager and others:
                self._moving.pop(partition, None)
                self._give(partition, self.choices.pick(others))

    def _thaw(self, manager: SteppedManager) -> None:
        if manager.frozen:
            manager.frozen = False
            for partition in list(manager.requests):
                if self.group.owners.get(partition) is not manager:
                    manager.revoked(partition)

    def _move(self, partition: int, to: SteppedManager) -> None:
        owner = self.group.owners.get(partition)
        if owner is None or not owner.alive:
            self._give(partition, to)
        elif owner.frozen:
            self._expel(owner)
        else:
            owner.revoked(partition)
            self._moving[partition] = (to, owner)

    def _follow_moves(self) -> None:
        for partition, (to, leaver) in list(self._moving.items()):
            heir = to if to.awake else self._awake_manager()
            if heir is not None and (not leaver.awake or leaver.has_left(partition)):
                del self._moving[partition]
                self._give(partition, heir)

    def _give(self, partition: int, to: SteppedManager) -> None:
        self.group.owners.pop(partition, None)
        if to.has_left(partition):
            self.group.owners[partition] = to
            to.assigned(partition)
        else:
            self._moving[partition] = (to, to)  # who was away joins anew, without anything

    def _assign(self, worker: Worker, role: str) -> None:
        assigned = control.assigned(
            worker.name,
            role,
            next(self._numbers),
            at_ms=self.now_ms,
            incarnation=str(worker.incarnation),
        )
        self.topics.append(CONTROL.name, 0, assigned)

    def _declare_lost(self, worker: Worker) -> None:
        lost = control.lost(worker.name, at_ms=self.now_ms, incarnation=str(worker.incarnation))
        self.topics.append(CONTROL.name, 0, lost)

    def _awake_manager(self) -> SteppedManager | None:
        awake = [manager for manager in self.managers if manager.awake]
        return self.choices.pick(awake) if awake else None

    def _some_manager(self) -> SteppedManager:
        return next(manager for manager in self.managers if manager.awake)

    def _worker_at_work(self) -> Worker | None:
        serving = [worker for worker in self.workers if worker.serves]
        return self.choices.pick(serving) if serving else None
