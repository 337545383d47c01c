"""Takeovers: partitions that are assigned but not owned yet, and the work that waits until then.

At a first start a manager reads the whole log and commits trajectories on the way. Commands wait
until it owns the partition. Kafka keeps both as long as needed, so reading them can pause
(`ReadAhead`). Main thread only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.bus.readers import Readers
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.replies import answered
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.topics import REQUESTS, SESSIONS

_MOST_COMMANDS = 1_000
_MOST_BYTES = 64_000_000


@dataclass(slots=True)
class Takeover:
    """State from a partition's assignment until this manager reads back its own claim."""

    partition: Partition
    reading: bool = False
    """True once events arrive for this assignment.

    Earlier events were on their way for an earlier assignment and must not be applied again.
    """
    commands: list[Received] = field(default_factory=list)
    unanswered: dict[str, list[tuple[Received, Folded]]] = field(default_factory=dict)
    """Events whose replies the former owner may not have sent, by session id."""

    failed: list[tuple[Received, Folded]] = field(default_factory=list)
    """Events that failed their sessions."""

    def note_event(self, received: Received, folded: Folded) -> bool:
        """Note a former owner's event that the partition has just applied.

        Returns True if its session has ended and no owner committed the trajectory.
        """
        partition = self.partition
        session = folded.session
        # A former owner has sent the replies and committed the trajectories of covered events.
        covered = received.offset < partition.progress.covered
        name: str = getattr(received.record, "session_id", "")
        # A first start commits trajectories on its way, before it may answer anything.
        if answered(folded) and not (covered and partition.progress.committed):
            self.unanswered.setdefault(name, []).append((received, folded))
            partition.sessions.pin(name)
        if folded.error is not None:
            self.failed.append((received, folded))
            partition.sessions.pin(name)
        if session is not None and session.finalized_at_ms is not None and folded.accepted:
            if not partition.progress.committed and partition.has_ended(session.session_id):
                covered = True  # by a progress that the consumer group has lost
                self.unanswered.pop(session.session_id, None)
            if not covered:
                return True
            partition.end(session)
        return False


class ReadAhead:
    """Bound on commands and trajectories that takeovers hold: above it, their reading pauses."""

    def __init__(
        self,
        takeovers: Mapping[int, Takeover],
        readers: Readers,
        most_commands: int = _MOST_COMMANDS,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._takeovers = takeovers
        self._readers = readers
        self._most_commands = most_commands
        self._most_bytes = most_bytes
        self._paused: dict[str, set[int]] = {REQUESTS.name: set(), SESSIONS.name: set()}

    def look(self) -> None:
        """Pause or resume reading. Called once a round."""
        takeovers = self._takeovers.values()
        commands = [command.size for takeover in takeovers for command in takeover.commands]
        emitted = [emission for takeover in takeovers for emission in takeover.partition.emitted]
        many = len(commands) > self._most_commands or sum(commands) > self._most_bytes
        self._pause(REQUESTS.name, many)
        # A known progress leaves little to emit, and only the owner commits that.
        excess = sum(emission.size for emission in emitted) > self._most_bytes
        self._pause(SESSIONS.name, excess)

    def _pause(self, topic: str, excess: bool) -> None:
        wanted = {
            number
            for number, takeover in self._takeovers.items()
            # Its sessions can only be paused once they are read.
            if excess
            and (topic == REQUESTS.name or (takeover.reading and takeover.partition.commits))
        }
        paused = self._paused[topic]
        for numbers, on in ((wanted - paused, True), (paused - wanted, False)):
            if numbers:
                self._readers.pause(topic, numbers, on)
        self._paused[topic] = wanted
