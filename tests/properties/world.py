"""A small cluster in one thread: agents, managers and workers that act when choices say so.

`run` first lets chance rule, then lets everything come to its end in peace. Nothing here knows what
ought to come of it; `Recorded` is what the oracle gets to see.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from infra.rendering import Renderer
from schemas import records as r
from schemas.records import PolicyWeights, Record, Sampling
from schemas.topics import CONTROL, FLEET, PROMPTS, REPLIES, SESSIONS
from tests.properties.agents import AGE_MS, IDLE_MS, POLICY, Agent
from tests.properties.answers import author
from tests.properties.choices import Choices
from tests.properties.engine import Generation, RecordedEngine
from tests.properties.gateway import Gateway
from tests.properties.managers import Group, StagedManager
from tests.properties.topics import Topics
from tests.properties.workers import Worker

_BEGINNING_MS = 1_000_000
_PEACE_ROUNDS = 3_000
_WAITS_MS = (1, 7, 60, 110, 300, 2_500, 21_000)
_STRICTNESS = ("arguments", "exact", "content", "ids")
_CONTEXTS = (400, 400, 400, 90)
_MANAGERS = 3
_WORKERS = 3


@dataclass
class Parts:
    """What the world is made of; faulty ones can be put in their place."""

    manager: Callable[..., StagedManager] = StagedManager
    engine: Callable[..., RecordedEngine] = RecordedEngine


@dataclass
class World:
    """The cluster. Sessions live on `partitions` partitions."""

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
        self._moving: dict[int, tuple[StagedManager, StagedManager]] = {}
        """Who is to have a partition, once whom has let go of it."""
        for partition in range(self.partitions):
            self._give(partition, choices.pick(self.managers))
        self.agents = [self._agent(number) for number in range(self.agents_wanted)]
        self._actions = self._weighted()

    def run(self) -> None:
        """Chance first, then peace. Raises `AssertionError` where something never ends."""
        while self.choices.left:
            self.choices.pick(self._actions)()
            self.now_ms += 1
        self.settle()

    def settle(self) -> None:
        """Everything that is still to be done is done, by whoever is left."""
        self._make_peace()
        for _ in range(_PEACE_ROUNDS):
            if not self._round():
                if self._over():
                    return
                self.now_ms += 200
        open_ = [name for manager in self.managers for name in manager.open_sessions()]
        raise AssertionError(f"I8: never at rest; open sessions: {open_}")

    def clock(self) -> int:
        """Milliseconds."""
        return self.now_ms

    # What may happen.

    def _weighted(self) -> list[Callable[[], None]]:
        often = [self._agents_act, self._pump, self._samples, self._managers_work]
        normal = [self._arrives, self._polls, self._workers_read, self._commits, self._looks]
        normal += [self._loads]
        seldom = [
            self._waits,
            self._hears,
            self._leaves,
            self._acquires,
            self._rebalances,
            self._freezes,
            self._thaws,
            self._worker_dies,
            self._manager_dies,
            self._worker_comes,
            self._engine_breaks,
            self._record_is_lost,
            self._prompt_comes_twice,
            self._worker_is_given_up,
        ]
        return [*(often * 12), *(normal * 6), *seldom]

    def _agents_act(self) -> None:
        self.choices.pick(self.agents).act(self.choices)

    def _pump(self) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.sending.flush()
                worker.read(3)
                worker.sample(self.choices, 3, True)
                worker.look()
        for manager in self.managers:
            if manager.awake:
                manager.sending.flush()
                manager.hear(5)
                manager.poll_requests(3)
                manager.poll_sessions(5)
                manager.handle(5)
                manager.look()
        self._follow_moves()

    def _samples(self) -> None:
        worker = self._worker_at_work()
        if worker is not None:
            worker.sample(self.choices, 1 + self.choices.below(5), not self.choices.one_in(3))

    def _managers_work(self) -> None:
        manager = self._awake_manager()
        if manager is not None:
            manager.handle(1 + self.choices.below(4))
            self._follow_moves()

    def _arrives(self) -> None:
        senders = [
            *(manager.sending for manager in self.managers if manager.alive),
            *(worker.sending for worker in self.workers if worker.alive),
        ]
        self.choices.pick(senders).deliver(self.choices, 1 + self.choices.below(4))

    def _polls(self) -> None:
        manager = self._awake_manager()
        if manager is not None:
            manager.poll_sessions(1 + self.choices.below(6))
            manager.poll_requests(1 + self.choices.below(3))

    def _workers_read(self) -> None:
        worker = self.choices.pick(self.workers)
        if worker.alive:
            worker.read(1 + self.choices.below(3))

    def _commits(self) -> None:
        manager = self._awake_manager()
        if manager is not None:
            manager.finish_commit()

    def _looks(self) -> None:
        worker, manager = self._worker_at_work(), self._awake_manager()
        if worker is not None:
            worker.look()
        if manager is not None:
            manager.look()

    def _waits(self) -> None:
        self.now_ms += self.choices.pick(_WAITS_MS)

    def _hears(self) -> None:
        manager = self._awake_manager()
        if manager is not None:
            manager.hear(1 + self.choices.below(4))

    def _new_weights(self) -> None:
        self.version += 1
        published = r.WeightsPublished(
            at_ms=self.now_ms,
            policy=POLICY,
            version=self.version,
            step=self.version,
            lineage="l",
            directory="",
            manifest_sha256="",
        )
        self.topics.append(CONTROL.name, 0, published)

    def _loads(self) -> None:
        worker = self._worker_at_work()
        if worker is not None:
            if worker.engine.version == self.version:
                self._new_weights()
            worker.load(self.version)

    def _leaves(self) -> None:
        worker = self._worker_at_work()
        if worker is not None:
            self._assign(worker, "train")
            worker.leave(next(self._numbers))

    def _acquires(self) -> None:
        worker = self.choices.pick(self.workers)
        if worker.alive and not worker.serves:
            worker.acquire(next(self._numbers))
            worker.beat()

    def _rebalances(self) -> None:
        partition = self.choices.below(self.partitions)
        to = self._awake_manager()
        if to is not None and partition not in self._moving:
            self._move(partition, to)

    def _freezes(self) -> None:
        manager = self._awake_manager()
        if manager is not None:
            manager.frozen = True
            if self.choices.one_in(2):
                self._expel(manager)

    def _thaws(self) -> None:
        self._thaw(self.choices.pick(self.managers))

    def _worker_dies(self) -> None:
        self.choices.pick(self.workers).kill(self.choices)

    def _manager_dies(self) -> None:
        self._end_manager(self.choices.pick(self.managers))

    def _worker_comes(self) -> None:
        number = self.choices.below(len(self.workers))
        if not self.workers[number].alive:
            self._restart(number)

    def _engine_breaks(self) -> None:
        worker = self._worker_at_work()
        if worker is not None:
            worker.break_engine()

    def _record_is_lost(self) -> None:
        self.choices.pick(self.workers).sending.lose(self.choices)

    def _prompt_comes_twice(self) -> None:
        slot = self.choices.below(len(self.workers))
        there = self.topics.records[PROMPTS.name, slot]
        if there:
            self.topics.append(PROMPTS.name, slot, self.choices.pick(there[-8:]).record)

    def _worker_is_given_up(self) -> None:
        worker = self.choices.pick(self.workers)
        if not worker.alive:
            self._declare_lost(worker)

    # How it happens.

    def _agent(self, number: int) -> Agent:
        partition, acts = self.choices.below(self.partitions), 3 + self.choices.below(8)
        agent = Agent(
            f"s{number}", partition, self.topics, self.gateway, self._numbers, self.clock, acts
        )
        if self.choices.one_in(4):
            agent.terms = r.SessionTerms(policy=POLICY, max_age_ms=AGE_MS, max_idle_ms=IDLE_MS)
            agent.lives = 1 + self.choices.below(2)
        return agent

    def _policy(self) -> PolicyWeights:
        return PolicyWeights(
            policy=POLICY,
            version=0,
            step=0,
            directory="",
            manifest_sha256="",
            tokenizer_directory="",
            tokenizer_hash=self.renderer.hash,
            renderer=b"{}",
            max_context=self.choices.pick(_CONTEXTS),
            overrides=Sampling(temperature=1.0),
            train_inexact=self.choices.one_in(4),
            strictness=self.choices.pick(_STRICTNESS),
            at_ms=0,
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

    def _manager(self, name: str) -> StagedManager:
        return self.parts.manager(name, self.topics, self.group, self.renderer, self.clock)

    def _end_manager(self, manager: StagedManager) -> None:
        manager.kill(self.choices)
        number = self.managers.index(manager)
        for worker in self.workers:
            if worker.alive:
                worker.beat()
        self.managers[number] = self._manager(f"m{next(self._numbers)}")
        self._expel(manager)

    def _expel(self, manager: StagedManager) -> None:
        """The group gives its partitions to others without asking it."""
        others = [one for one in self.managers if one is not manager and one.awake]
        for partition, owner in list(self.group.owners.items()):
            if owner is manager and others:
                self._moving.pop(partition, None)
                self._give(partition, self.choices.pick(others))

    def _thaw(self, manager: StagedManager) -> None:
        if manager.frozen:
            manager.frozen = False
            for partition in list(manager.requests):
                if self.group.owners.get(partition) is not manager:
                    manager.revoked(partition)

    def _move(self, partition: int, to: StagedManager) -> None:
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

    def _give(self, partition: int, to: StagedManager) -> None:
        self.group.owners.pop(partition, None)
        if to.has_left(partition):
            self.group.owners[partition] = to
            to.assigned(partition)
        else:
            self._moving[partition] = (to, to)  # who was away joins anew, without anything

    def _assign(self, worker: Worker, role: str) -> None:
        assigned = r.RoleAssigned(
            epoch=1,
            at_ms=self.now_ms,
            assignment=next(self._numbers),
            worker=worker.name,
            incarnation=str(worker.incarnation),
            role=role,
            slot=None,
            reason="",
            deadline_ms=0,
        )
        self.topics.append(CONTROL.name, 0, assigned)

    def _declare_lost(self, worker: Worker) -> None:
        lost = r.WorkerLost(
            epoch=1,
            at_ms=self.now_ms,
            worker=worker.name,
            incarnation=str(worker.incarnation),
            process="rollout",
            reason="no_heartbeat",
        )
        self.topics.append(CONTROL.name, 0, lost)

    def _awake_manager(self) -> StagedManager | None:
        awake = [manager for manager in self.managers if manager.awake]
        return self.choices.pick(awake) if awake else None

    def _some_manager(self) -> StagedManager:
        return next(manager for manager in self.managers if manager.awake)

    def _worker_at_work(self) -> Worker | None:
        serving = [worker for worker in self.workers if worker.serves]
        return self.choices.pick(serving) if serving else None

    # Peace.

    def _make_peace(self) -> None:
        for manager in self.managers:
            self._thaw(manager)
        for number, worker in enumerate(self.workers):
            if not worker.alive:
                self._declare_lost(worker)
                self._restart(number)
            elif not worker.serves:
                self._acquires_again(worker)
        for partition in range(self.partitions):
            owner = self.group.owners.get(partition)
            if partition not in self._moving and (owner is None or not owner.awake):
                self._give(partition, self._some_manager())

    def _acquires_again(self, worker: Worker) -> None:
        worker.acquire(next(self._numbers))
        worker.beat()

    def _round(self) -> bool:
        moved = False
        self.now_ms += 1
        for agent in self.agents:
            moved |= agent.act(self.choices)
        for worker in self.workers:
            moved |= worker.sending.flush()
            moved |= worker.read(100)
            while worker.sample(self.choices, 100, True):
                moved = True
            worker.look()
        for manager in self.managers:
            moved |= manager.sending.flush()
            moved |= manager.hear(100)
            moved |= manager.poll_requests(100)
            moved |= manager.poll_sessions(100)
            moved |= manager.handle(100)
            manager.look()
            moved |= manager.finish_commit()
        self._follow_moves()
        return moved

    def _over(self) -> bool:
        return (
            not self._moving
            and not any(manager.unfinished() for manager in self.managers)
            and all(agent.done for agent in self.agents)
        )

    def events(self, partition: int) -> list[Record]:
        """The event log of a partition."""
        return [received.record for received in self.topics.records[SESSIONS.name, partition]]

    def replies(self) -> list[Record]:
        """All replies."""
        return [received.record for received in self.topics.records[REPLIES.name, 0]]
