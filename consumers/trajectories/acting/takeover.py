"""A partition that was assigned and is not owned yet, and what has to wait until it is."""

from dataclasses import dataclass, field

from consumers.trajectories.sessions.assemble import trajectory
from consumers.trajectories.sessions.fold import Folded
from consumers.trajectories.sessions.partition import Partition
from infra.kafka.client import Received


@dataclass(slots=True)
class Takeover:
    """From the group's assignment until the manager's own claim is read back."""

    partition: Partition
    reading: bool = False
    """Whether events are read for this assignment; what comes before that was under way for an
    earlier one."""
    commands: list[Received] = field(default_factory=list)
    unanswered: list[tuple[Received, Folded]] = field(default_factory=list)
    """Events whose replies nobody may have sent."""

    def note_event(self, received: Received, folded: Folded) -> None:
        """Takes note of an event of former owners."""
        partition, session = self.partition, folded.session
        covered = received.offset < partition.progress.covered
        if folded.accepted and not covered:
            self.unanswered.append((received, folded))
        if session is not None and session.finalized_at_ms is not None and folded.accepted:
            if not covered:
                partition.emitted.append(trajectory(session, partition.number))
            partition.end(session)
