"""A partition that is assigned but not owned yet, and the work that waits until it is."""

from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.replies import answered
from seamlessflow.infra.kafka.client import Received


@dataclass(slots=True)
class Takeover:
    """State from the assignment of a partition until this manager reads back its own claim."""

    partition: Partition
    reading: bool = False
    """True once events arrive for this assignment. Events before that were on their way for an
    earlier one and must not be applied again."""
    commands: list[Received] = field(default_factory=list)
    unanswered: dict[str, list[tuple[Received, Folded]]] = field(default_factory=dict)
    """Events whose replies the former owner may not have sent, by session id."""

    failed: list[tuple[Received, Folded]] = field(default_factory=list)
    """Events that failed their sessions."""

    def note_event(self, received: Received, folded: Folded) -> Exception | None:
        """Note an event of a former owner that the partition has just applied.

        Returns the error of a session whose trajectory could not be assembled.
        """
        partition, session = self.partition, folded.session
        # A former owner has sent the replies and committed the trajectories of covered events.
        covered = received.offset < partition.progress.covered
        name: str = getattr(received.record, "session_id", "")
        # A first start commits trajectories on its way, before it may answer anything.
        if answered(folded) and not (covered and partition.progress.known):
            self.unanswered.setdefault(name, []).append((received, folded))
            partition.sessions.pin(name)
        if folded.error is not None:
            self.failed.append((received, folded))
            partition.sessions.pin(name)
        if session is not None and session.finalized_at_ms is not None and folded.accepted:
            if not partition.progress.known and partition.has_ended(session.session_id):
                covered = True  # by a progress that the consumer group has lost
                self.unanswered.pop(session.session_id, None)
            if covered:
                partition.end(session)
            else:
                return partition.emit(session, received.headers)
        return None
