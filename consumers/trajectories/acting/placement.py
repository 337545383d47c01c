"""Placement of turns on workers: dispatch, take back from leaving workers, wait for new ones.

The records themselves come from `decisions/dispatch.py`. Main thread only; no method blocks.
"""

from collections.abc import Mapping

from consumers.trajectories.acting.failures import Failures
from consumers.trajectories.bus.outbox import Outbox
from consumers.trajectories.decisions import dispatch
from consumers.trajectories.decisions.context import Contexts, Decision
from consumers.trajectories.decisions.fleet import Departure
from consumers.trajectories.sessions.partition import Partition
from consumers.trajectories.sessions.session import Session, Turn
from infra.kafka.client import Headers


class Placement:
    """The running turns of all partitions that this manager owns."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        contexts: Contexts,
        outbox: Outbox,
        hand_back_ms: int,
        failures: Failures,
    ) -> None:
        self._partitions = partitions
        self._contexts = contexts
        self._fleet = contexts.fleet
        self._outbox = outbox
        self._hand_back_ms = hand_back_ms
        self._failures = failures
        self._hand_back_until: dict[str, int] = {}
        """Time until which a worker that left its role may hand back turns, by worker."""
        self._waiting: dict[tuple[int, str], None] = {}
        """Partition and id of sessions with a turn that no worker could take, oldest first."""
        self._traced: dict[str, Headers] = {}
        """Headers that name the trace of a running turn, by its id; none for most turns."""
        self._arrivals_tried = 0
        """Value of `RolloutFleet.arrivals` at the last attempt to place the waiting turns."""

    def trace(self, turn_id: str, headers: Headers) -> None:
        """Keep the trace of a turn for its later dispatches; no `headers`: drop it."""
        if headers:
            self._traced[turn_id] = headers
        else:
            self._traced.pop(turn_id, None)

    def add_waiting(self, partition: Partition, session_id: str) -> None:
        """Keep a session with a turn that no worker can take now."""
        self._waiting[partition.number, session_id] = None

    def place(
        self, partition: Partition, session: Session, reason: str, headers: Headers = ()
    ) -> None:
        """Dispatch all turns of the session that have no worker."""
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
        """Dispatch the turn behind its last accepted token, or keep it if no worker can take it."""
        with self._failures.guard(partition, session, f"dispatch turn {turn.started.turn_id}"):
            decision = dispatch.again(session, turn, reason, self._contexts.now(partition))
            if decision.events:
                traced = headers or self._traced.get(turn.started.turn_id, ())
                self._outbox.carry_out(partition, decision, traced)
            else:
                self.add_waiting(partition, session.session_id)

    def resume(self, partition: Partition, session: Session) -> None:
        """Resume the turns of a former owner, whose last prompts may not have been sent.

        A worker that still serves gets the same dispatch again and ignores it if it has it.
        """
        for turn in list(session.running.values()):
            prompts = dispatch.repeated(session, turn, self._contexts.now(partition))
            if prompts:
                self._outbox.carry_out(partition, Decision([], prompts))
            else:
                self.redispatch(partition, session, turn, "worker_lost")

    def departed(self, departure: Departure) -> None:
        """Take the turns of a departed worker, at once or after its time to hand them back."""
        if departure.at_once:
            self._take_back(departure.worker, departure.incarnation)
        else:
            self.expect_hand_back(departure.worker)

    def expect_hand_back(self, worker: str) -> None:
        """Give a leaving worker time to hand back its turns; `take_back_overdue` takes the rest."""
        self._hand_back_until.setdefault(worker, self._contexts.clock() + self._hand_back_ms)

    def take_back_overdue(self, now: int) -> None:
        """Take the turns of workers whose time to hand them back is over."""
        for worker in [worker for worker, due in self._hand_back_until.items() if due <= now]:
            del self._hand_back_until[worker]
            if worker not in self._fleet.workers:
                self._take_back(worker)

    @property
    def next_take_back_ms(self) -> int | None:
        """Earliest time at which `take_back_overdue` has something to do, or None."""
        return min(self._hand_back_until.values(), default=None)

    def place_waiting(self) -> None:
        """Dispatch the waiting turns if a worker arrived since the last call. Once a round."""
        arrivals = self._fleet.arrivals
        if arrivals == self._arrivals_tried:
            return
        self._arrivals_tried = arrivals
        waiting, self._waiting = self._waiting, {}
        for number, session_id in waiting:
            partition = self._partitions.get(number)
            if partition is None or not partition.owned:
                continue  # its next owner resumes all its turns
            session = partition.sessions.get(session_id)
            # A dispatch of this turn may be on its way to the log.
            if partition.reading_back(session_id):
                self.add_waiting(partition, session_id)
                self._arrivals_tried = -1  # try again in the next round
            elif session is not None:
                self.place(partition, session, "interrupted")

    def recount(self) -> None:
        """Count the workers' loads anew from the running turns, to correct any drift."""
        self._fleet.recount(
            (turn.worker, turn.incarnation)
            for partition in self._owned()
            for session in partition.sessions.in_memory
            for turn in session.running.values()
            if turn.worker is not None
        )

    def _take_back(self, worker: str, incarnation: str | None = None) -> None:
        for partition in self._owned():
            for session in partition.sessions.in_memory:
                for turn in list(session.running.values()):
                    if turn.worker == worker and incarnation in (None, turn.incarnation):
                        self.redispatch(partition, session, turn, "worker_lost")

    def _owned(self) -> list[Partition]:
        return [partition for partition in self._partitions.values() if partition.owned]
