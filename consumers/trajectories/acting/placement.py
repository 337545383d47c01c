"""Which worker has which turn: turns are given out, taken back, kept while nobody can take them.

Dispatches themselves are made in `dispatch.py`.
"""

from collections.abc import Mapping

from consumers.trajectories.bus.outbox import Outbox
from consumers.trajectories.decisions import dispatch
from consumers.trajectories.decisions.context import Contexts, Decision
from consumers.trajectories.decisions.fleet import Departure
from consumers.trajectories.sessions.partition import Partition
from consumers.trajectories.sessions.session import Session, Turn
from infra.kafka.client import Headers


class Placement:
    """The turns under way of all partitions that this manager owns."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        contexts: Contexts,
        outbox: Outbox,
        hand_back_ms: int,
    ) -> None:
        self._partitions = partitions
        self._contexts = contexts
        self._fleet = contexts.fleet
        self._outbox = outbox
        self._hand_back_ms = hand_back_ms
        self._hand_back_until: dict[str, int] = {}
        """Until when a leaving worker may hand turns back."""
        self._waiting: dict[tuple[int, str], None] = {}
        """Sessions with a turn that no worker could take."""
        self._served_arrivals = 0
        """Arrivals in the fleet that all waiting turns were tried with."""

    def add_waiting(self, partition: Partition, session_id: str) -> None:
        """Keeps a session with a turn that no worker can take now."""
        self._waiting[partition.number, session_id] = None

    def place(
        self, partition: Partition, session: Session, reason: str, headers: Headers = ()
    ) -> None:
        """Gives the session's turns that nobody samples to workers."""
        for turn in list(session.running.values()):
            if turn.worker is None:
                self.redispatch(partition, session, turn, reason, headers)

    def redispatch(
        self,
        partition: Partition,
        session: Session,
        turn: Turn,
        reason: str,
        headers: Headers = (),
    ) -> None:
        """Gives the turn to a worker, from where the log has it."""
        decision = dispatch.again(session, turn, reason, self._contexts.now(partition))
        if decision.events:
            self._outbox.carry_out(partition, decision, headers)
        else:
            self.add_waiting(partition, session.session_id)

    def resume(self, partition: Partition, session: Session) -> None:
        """Goes on with turns of a former owner: what it sent may be lost."""
        for turn in list(session.running.values()):
            sent_again = dispatch.repeated(session, turn, self._contexts.now(partition))
            if sent_again:
                self._outbox.carry_out(partition, Decision([], sent_again))
            else:
                self.redispatch(partition, session, turn, "worker_lost")

    def departed(self, departure: Departure) -> None:
        """A worker will not finish what it has; unless `at_once` it may still hand that back."""
        if departure.at_once:
            self._take_back(departure.worker, departure.incarnation)
        else:
            self.expect_hand_back(departure.worker)

    def expect_hand_back(self, worker: str) -> None:
        """Takes a leaving worker's turns from it unless it hands them back in time."""
        self._hand_back_until.setdefault(worker, self._contexts.clock() + self._hand_back_ms)

    def take_back_overdue(self, now: int) -> None:
        """Takes turns from the workers whose time to hand them back is over."""
        for worker in [worker for worker, due in self._hand_back_until.items() if due <= now]:
            del self._hand_back_until[worker]
            if worker not in self._fleet.workers:
                self._take_back(worker)

    @property
    def next_take_back_ms(self) -> int | None:
        """When `take_back_overdue` has something to do, if ever."""
        return min(self._hand_back_until.values(), default=None)

    def place_waiting(self) -> None:
        """Tries anew to place the turns that no worker could take, if somebody came."""
        arrivals = self._fleet.arrivals
        if arrivals == self._served_arrivals:
            return
        self._served_arrivals = arrivals
        waiting, self._waiting = self._waiting, {}
        for number, session_id in waiting:
            partition = self._partitions.get(number)
            if partition is None or not partition.owned:
                continue  # whoever owns it next looks after all its turns
            session = partition.sessions.get(session_id)
            if partition.reading_back(session_id):
                self.add_waiting(partition, session_id)
                self._served_arrivals = -1  # not tried yet
            elif session is not None:
                self.place(partition, session, "interrupted")

    def recount(self) -> None:
        """Counts the workers' load anew from the turns under way."""
        self._fleet.recount(
            (turn.worker, turn.incarnation)
            for partition in self._owned()
            for session in partition.sessions.values()
            for turn in session.running.values()
            if turn.worker is not None
        )

    def _take_back(self, worker: str, incarnation: str | None = None) -> None:
        for partition in self._owned():
            for session in list(partition.sessions.values()):
                for turn in list(session.running.values()):
                    if turn.worker == worker and incarnation in (None, turn.incarnation):
                        self.redispatch(partition, session, turn, "worker_lost")

    def _owned(self) -> list[Partition]:
        return [partition for partition in self._partitions.values() if partition.owned]
