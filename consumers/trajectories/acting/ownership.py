"""Assignment and ownership: which partitions this manager has, and in which it may act.

The Kafka consumer group assigns partitions; its callbacks run in the thread that reads `requests`.
Assigned is not owned. This manager first appends a claim. It owns the partition once it reads that
claim back as the first of its epoch. By then it has applied all earlier events. Another manager's
newer claim ends ownership as soon as it is read.
"""

import logging
import threading
from collections.abc import Mapping
from functools import partial

from seamlessflow.consumers.trajectories.acting.actor import Actor
from seamlessflow.consumers.trajectories.acting.failures import Acting
from seamlessflow.consumers.trajectories.acting.takeover import ReadAhead, Takeover
from seamlessflow.consumers.trajectories.bus.connections import Connections
from seamlessflow.consumers.trajectories.bus.request_ends import RequestEnds
from seamlessflow.consumers.trajectories.sessions.ended import EndedRead
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.schemas.records import PartitionClaimed

_log = logging.getLogger(__name__)
_REVOKE_TIMEOUT_S = 20


class Ownership:
    """Passes records of owned partitions to the actor; keeps commands for other partitions."""

    def __init__(
        self,
        manager: str,
        acting: Acting,
        connections: Connections,
        actor: Actor,
        request_ends: RequestEnds,
    ) -> None:
        self._manager = manager
        self._partitions = acting.partitions
        self._contexts = acting.contexts
        self._readers = connections.readers
        self._committer = connections.committer
        self._inbox = connections.inbox
        self._outbox = acting.outbox
        self._actor = actor
        self._request_ends = request_ends
        self._assignments = 0
        self._takeovers: dict[int, Takeover] = {}
        self._read_ahead = ReadAhead(self._takeovers, connections.readers)
        self._leaving = False

    def join(self) -> None:
        """Join the Kafka consumer group. Assignments arrive through the inbox."""
        self._readers.join_group(
            lambda partitions: self._inbox.post(partial(self.assigned, partitions)), self._revoked
        )

    def leave(self) -> None:
        """Let revocations return at once from now on, because the main loop no longer runs."""
        self._leaving = True

    def assigned(self, partitions: Mapping[int, tuple[int, PartitionProgress]]) -> None:
        """Begin to take over partitions, each given with next `requests` offset and progress."""
        self._assignments += 1
        # Numbered, so that a claim sent for an earlier assignment does not count for this one.
        owner = f"{self._manager}.{self._assignments}"
        begun = []
        for number, (offset, progress) in partitions.items():
            partition = Partition(number, progress, owner, next_request=offset, read_again_to=None)
            takeover = Takeover(partition)
            self._forget(number)
            self._partitions[number] = partition
            self._takeovers[number] = takeover
            # At once: the claim ends the former owner's epoch while this manager still rebuilds.
            self._claim(partition)
            begun.append(takeover)
        self._read_sessions(
            [takeover for takeover in begun if takeover.partition.progress.committed]
        )
        self._readers.read_ended(
            list(partitions),
            lambda ends: self._inbox.post(partial(self._ended_read, begun, ends)),
        )

    def revoked(self, numbers: list[int], done: threading.Event) -> None:
        """Give up partitions, then set `done`, for which the group's callback waits.

        Blocks until the transaction in progress ends, at most 20 s, so that the next owner finds
        its offsets committed.
        """
        self._committer.idle.wait(_REVOKE_TIMEOUT_S)
        self._drop(numbers)
        done.set()

    def handle_command(self, received: Received) -> None:
        """Pass a command to the actor, or keep it until the partition is owned."""
        partition = self._partitions.get(received.partition)
        if partition is None:
            return
        if partition.owned:
            self._actor.handle_command(partition, received)
        else:
            self._takeovers[partition.number].commands.append(received)

    def handle_event(self, received: Received) -> None:
        """Apply a partition's next event, and act on it if the partition is owned."""
        partition = self._partitions.get(received.partition)
        takeover = self._takeovers.get(received.partition)
        if partition is None or (takeover is not None and not takeover.reading):
            return
        folded = partition.apply(received.record, received.offset, self._contexts.fleet.strictness)
        if received.headers and folded.accepted:
            partition.note_trace(received.record, received.headers)
        # A claim decides who owns; until then events are only noted, afterwards acted on.
        if isinstance(received.record, PartitionClaimed):
            self._claimed(partition, received.record)
        elif takeover is not None:
            if takeover.note_event(received, folded) and folded.session is not None:
                self._actor.emit(partition, folded.session, received.headers)
            self._answer_early(takeover, folded)
        else:
            self._actor.handle_event(partition, received, folded)

    def look(self) -> None:
        """Pause reading for takeovers that hold too much, or resume it. Called once a round."""
        self._read_ahead.look()

    def _answer_early(self, takeover: Takeover, folded: Folded) -> None:
        """Repeat the replies of a session whose trajectory is committed before the takeover."""
        partition = takeover.partition
        session = folded.session
        if partition.commits and session is not None and session.finalized_at_ms is not None:
            for received, earlier in takeover.unanswered.pop(session.session_id, ()):
                self._actor.repeat_replies(partition, received, earlier)

    def _read_sessions(self, takeovers: list[Takeover]) -> None:
        starts = {
            takeover.partition.number: takeover.partition.progress.rebuild
            if takeover.partition.progress.committed
            else BEGINNING
            for takeover in takeovers
        }
        # Records that are in the inbox before `_begin_reading` were read for an earlier assignment.
        self._readers.add_sessions(
            starts, lambda: self._inbox.post(partial(_begin_reading, takeovers))
        )

    def _ended_read(self, takeovers: list[Takeover], ends: Mapping[int, EndedRead]) -> None:
        """Load the sessions that former owners ended, and do the work that waited for them."""
        current = [
            takeover
            for takeover in takeovers
            if self._partitions.get(takeover.partition.number) is takeover.partition
        ]
        for takeover in current:
            takeover.partition.ended.load(ends.get(takeover.partition.number, EndedRead()))
            self._actor.resume(takeover.partition)
        # Without a committed progress, only these ends show which trajectories exist already.
        lost = [takeover for takeover in current if not takeover.partition.progress.committed]
        if lost:
            self._read_sessions(lost)

    def _revoked(self, numbers: list[int]) -> None:
        """Wait in the thread of `requests`: Kafka gives the partitions away when this returns."""
        if self._leaving:
            return
        done = threading.Event()
        self._inbox.post(partial(self.revoked, numbers, done))
        if not done.wait(_REVOKE_TIMEOUT_S):
            _log.warning("gave up partitions %s before the main loop let go of them", numbers)

    def _drop(self, numbers: list[int]) -> None:
        held = [number for number in numbers if number in self._partitions]
        for number in held:
            self._forget(number)
        if held:
            self._readers.remove_sessions(held)

    def _forget(self, number: int) -> None:
        """Drop everything that an earlier assignment left about a partition."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            partition.sessions.clear()
        self._takeovers.pop(number, None)
        self._actor.forget(number)

    def _claimed(self, partition: Partition, claim: PartitionClaimed) -> None:
        if partition.fenced:
            _log.warning("partition %d was claimed by %s", partition.number, claim.manager)
            self._drop([partition.number])
        elif claim.manager != partition.manager:
            return
        elif not partition.owned:  # a claim that was appended before has this epoch
            self._claim(partition)
        else:
            _log.debug("owns partition %d from epoch %d", partition.number, claim.epoch)
            self._begin_to_act(partition, self._takeovers.pop(partition.number))

    def _begin_to_act(self, partition: Partition, takeover: Takeover) -> None:
        # Former owners may have carried out commands that stand before this end.
        self._request_ends.want()
        # The order matters: replies that may be missing, then turns, then commands behind them.
        for events in takeover.unanswered.values():
            for received, folded in events:
                self._actor.repeat_replies(partition, received, folded)
        for received, folded in takeover.failed:
            self._actor.end_failed(partition, received, folded)
        partition.sessions.unpin()
        self._actor.reconcile(partition)
        for received in takeover.commands:
            self._actor.handle_command(partition, received)

    def _claim(self, partition: Partition) -> None:
        claim = PartitionClaimed(
            partition=partition.number,
            epoch=max(partition.epoch, partition.progress.epoch) + 1,
            manager=partition.manager,
            at_ms=self._contexts.clock(),
        )
        self._outbox.claim(claim)


def _begin_reading(takeovers: list[Takeover]) -> None:
    for takeover in takeovers:
        takeover.reading = True
