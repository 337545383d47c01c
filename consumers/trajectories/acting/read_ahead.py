"""Bound on what a partition holds while it is taken over: commands that wait, and trajectories.

A first start reads the whole log and commits trajectories on its way; commands wait until it owns
the partition. Kafka keeps both as long as needed, so their reading pauses. Main thread only.
"""

from collections.abc import Mapping

from seamlessflow.consumers.trajectories.acting.takeover import Takeover
from seamlessflow.consumers.trajectories.bus.readers import Readers
from seamlessflow.schemas.topics import REQUESTS, SESSIONS

_MOST_COMMANDS = 1_000
_MOST_BYTES = 64_000_000


class ReadAhead:
    """The partitions of `requests` and `sessions` of takeovers whose reading is paused."""

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
        # A known progress leaves little to emit, and it is only committed by the owner.
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
