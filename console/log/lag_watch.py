"""The thread that asks Kafka for its consumer groups, as long as a page shows their lag.

It joins no group. It takes the ends of partitions from what the console has read.
"""

import logging
import threading
from collections.abc import Mapping, Sequence

from seamlessflow.console.log.index import LogIndex
from seamlessflow.console.models.surroundings import group_reading
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.topics.groups import GroupLookup
from seamlessflow.infra.kafka.topics.lag import ABSENT, GroupState
from seamlessflow.infra.settings import KafkaSettings

EVERY_S = 5.0
_ANSWER_S = 3.0
_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class LagWatch:
    """Consumer groups, as they were when Kafka was last asked."""

    def __init__(self, settings: KafkaSettings, groups: Mapping[str, str], index: LogIndex) -> None:
        """Prepare; `groups`: by topic, the group that commits offsets for it."""
        self._lookup = GroupLookup(settings)
        self._groups = groups
        self._index = index
        self._state: Sequence[GroupState] = ()
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking."""
        self._closing.set()
        self._wanted.set()
        self._thread.join(_CLOSE_S)

    def state(self) -> Sequence[GroupState]:
        """Return the groups that exist, and request a new reading."""
        self._wanted.set()
        return self._state

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            try:
                readings = [self._reading(topic, group) for topic, group in self._groups.items()]
                self._state = [reading for reading in readings if reading.state not in ABSENT]
            except KafkaUnavailable as error:
                _log.warning("%s", error)
            self._closing.wait(EVERY_S)

    def _reading(self, topic: str, group: str) -> GroupState:
        try:
            members = self._lookup.find(group, _ANSWER_S)
            committed = self._lookup.committed(group, _ANSWER_S)
        except KafkaRefused as error:
            return GroupState(group, topic, refused=error.reason)
        partitions = self._index.partitions.copy()
        bounds = {
            place[1]: (int(partition.column("offset")[0]), partition.end(partition.rows))
            for place, partition in partitions.items()
            if place[0] == topic and partition.rows
        }
        return group_reading(group, topic, members, committed, bounds)
