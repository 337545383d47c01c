"""Placement of turns on workers: dispatch, return from leaving workers, wait for new workers.

New workers also get their share of the running turns. `decisions/dispatch.py` builds the records.
Main thread only; no method blocks.
"""

from collections.abc import Iterator, Mapping

from seamlessflow.consumers.trajectories.acting.failures import Acting
from seamlessflow.consumers.trajectories.decisions import dispatch
from seamlessflow.consumers.trajectories.decisions.context import Decision
from seamlessflow.consumers.trajectories.decisions.fleet import Departure
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.infra.worker.balance import given_up
from seamlessflow.schemas.topics import Headers

_Running = tuple[Partition, Session, Turn]
_SETTLES_MS = 1_000
"""Time after a worker begins to serve, during which the turns are evened out."""


class Placement:
    """Places the running turns in all partitions that this manager owns."""

    def __init__(
        self,
        acting: Acting,
        hand_back_ms: int,
    ) -> None:
        self._partitions: Mapping[int, Partition] = acting.partitions
        self._contexts = acting.contexts
        self._fleet = acting.contexts.fleet
        self._outbox = acting.outbox
        self._hand_back_ms = hand_back_ms
        self._failures = acting.failures
        self._hand_back_until: dict[str, int] = {}
        """Time until which a worker that left its role may hand back turns, by worker."""
        self._waiting: dict[tuple[int, str], None] = {}
        """Partition and id of sessions with a turn that no worker could take, oldest first."""
        self._traced: dict[str, Headers] = {}
        """Headers that name a running turn's trace, by turn id; most turns have none."""
        self._arrivals_tried = 0
        """`RolloutFleet.arrivals` at the last attempt to place the waiting turns."""
        self._beginners = 0
        """`RolloutFleet.beginners` in the last round."""
        self._uneven_until = 0
        """Time after which the newest worker has got its share of the turns."""
        self._even_again = 0
        """Earliest time for the next look at the shares; by then all moved turns have a worker."""
        self._moving: set[str] = set()
        """Turns that a busy worker was asked to hand back in the last look."""

    def trace(self, turn_id: str, headers: Headers) -> None:
        """Keep a turn's trace for its later dispatches; without `headers`, drop it."""
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
        """Dispatch all the session's turns that have no worker."""
        for turn in list(session.running.values()):
            if turn.worker is None:
                why = "rebalanced" if turn.started.turn_id in self._moving else reason
                self.redispatch(partition, session, turn, why, headers)

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
        """Resume a former owner's turns, whose last prompts may not have been sent.

        A worker that still serves gets the same dispatch again. It ignores one that it has already.
        """
        for turn in list(session.running.values()):
            prompts = dispatch.repeated(session, turn, self._contexts.now(partition))
            if prompts:
                self._outbox.carry_out(partition, Decision([], prompts))
            else:
                self.redispatch(partition, session, turn, "worker_lost")

    def departed(self, departure: Departure) -> None:
        """Take a departed worker's turns, at once or after its time to hand them back."""
        if departure.at_once:
            self._take_back(departure.worker, departure.incarnation)
        else:
            self.expect_hand_back(departure.worker)

    def expect_hand_back(self, worker: str) -> None:
        """Let a leaving worker hand back turns for a while; `take_back_overdue` takes the rest."""
        self._hand_back_until.setdefault(worker, self._contexts.clock() + self._hand_back_ms)

    def take_back_overdue(self, now: int) -> None:
        """Take the turns from workers whose time to hand them back is over."""
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
        waiting = self._waiting
        self._waiting = {}
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

    def even_out(self) -> None:
        """Ask busy workers to give up turns for workers that began to serve. Once a round.

        A turn that is handed back goes on behind its last token on the least loaded worker. It
        takes several looks, since workers begin one after the other, and a dispatch has no worker
        until it is read back.
        """
        now = self._contexts.clock()
        if self._beginners != self._fleet.beginners:
            self._beginners = self._fleet.beginners
            self._uneven_until = now + _SETTLES_MS
        if not self._even_again <= now < self._uneven_until:
            return
        self._even_again = now + self._hand_back_ms
        self._moving.clear()
        tags = {worker.worker: worker.tags for worker in self._fleet.workers.values()}
        for policy in {worker.policy for worker in self._fleet.workers.values()}:
            for partition, session, turn in given_up(self._placed(policy), tags, _wishes):
                self._move(partition, session, turn)

    def recount(self) -> None:
        """Count the workers' loads anew from the running turns, to correct any drift."""
        self._fleet.recount(
            (turn.worker, turn.incarnation)
            for _, _, turn in self._running()
            if turn.worker is not None
        )

    def _move(self, partition: Partition, session: Session, turn: Turn) -> None:
        with self._failures.guard(partition, session, f"move turn {turn.started.turn_id}"):
            context = self._contexts.now(partition)
            cancels = dispatch.stop(session, [turn], "rebalanced", context)
            self._outbox.carry_out(partition, Decision([], cancels))
            self._moving.add(turn.started.turn_id)

    def _take_back(self, worker: str, incarnation: str | None = None) -> None:
        for partition, session, turn in list(self._running()):
            if turn.worker == worker and incarnation in (None, turn.incarnation):
                self.redispatch(partition, session, turn, "worker_lost")

    def _placed(self, policy: str) -> dict[str, list[_Running]]:
        """Return the turns of each worker that serves a policy, the cheapest to move first."""
        workers = self._fleet.workers.values()
        placed: dict[str, list[_Running]] = {w.worker: [] for w in workers if w.policy == policy}
        for running in self._running():
            turn = running[2]
            if turn.worker in placed and self._fleet.routable(turn.worker, turn.incarnation):
                placed[turn.worker].append(running)
        for turns in placed.values():
            turns.sort(key=_tokens_to_recompute)
        return placed

    def _running(self) -> Iterator[_Running]:
        for partition in self._partitions.values():
            if partition.owned:
                for session in partition.sessions.in_memory:
                    for turn in session.running.values():
                        yield partition, session, turn


def _wishes(running: _Running) -> tuple[str, ...]:
    return running[2].started.tags


def _tokens_to_recompute(running: _Running) -> tuple[bool, int]:
    """Return (has sampled, tokens) of a turn; one that has not sampled may still wait."""
    _, session, turn = running
    sampled = session.tree.nodes[turn.node].length
    return sampled > 0, turn.started.prompt_length + sampled
