"""Random actions in a cluster, then a calm in which everything comes to its end.

Nothing here knows the expected result.
"""

from collections.abc import Callable

from seamlessflow.schemas.topics import CONTROL, PROMPTS
from tests.builders.records import control
from tests.properties.simulation.callers import POLICY
from tests.properties.simulation.cluster import Cluster
from tests.properties.simulation.workers import Worker

_PEACE_ROUNDS = 3_000
_WAITS_MS = (1, 7, 60, 110, 300, 2_500, 21_000)


class Simulation(Cluster):
    """A cluster whose actions its choices pick."""

    def run(self) -> None:
        """Run random actions, then settle. Raises `AssertionError` if something never ends."""
        actions = self._weighted()
        while self.choices.left:
            self.choices.pick(actions)()
            self.now_ms += 1
        self.settle()

    def settle(self) -> None:
        """Finish everything that is open, without further disturbances."""
        self._come_to_rest()
        for _ in range(_PEACE_ROUNDS):
            if not self._round():
                if self._over():
                    return
                self.now_ms += 200
        open_ = [name for manager in self.managers for name in manager.open_sessions()]
        raise AssertionError(f"I8: never at rest; open sessions: {open_}")

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
        published = control.published(self.version, at_ms=self.now_ms, policy=POLICY)
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
        prompts = self.topics.records[PROMPTS.name, slot]
        if prompts:
            self.topics.append(PROMPTS.name, slot, self.choices.pick(prompts[-8:]).record)

    def _worker_is_given_up(self) -> None:
        worker = self.choices.pick(self.workers)
        if not worker.alive:
            self._declare_lost(worker)

    def _come_to_rest(self) -> None:
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
