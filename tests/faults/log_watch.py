"""Watch of a run's log from now on: its records in the order of arrival."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TOPICS, TRAJECTORIES, Topic

R = TypeVar("R", bound=Record)
PARTITIONS = 4
FEW: Mapping[str, Topic] = {
    name: replace(topic, partitions=min(topic.partitions, PARTITIONS))
    for name, topic in TOPICS.items()
}
"""All topics, with so few partitions that each is busy."""


class LogWatch:
    """Reader of the topics that show progress, for one thread. `mark` is a place in it."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._reader = Reader(kafka, "watch")
        self._of_kind: dict[type[Record], list[tuple[int, Any]]] = defaultdict(list)
        self.mark = 0
        """Number of records so far."""
        topics = [FEW[topic.name] for topic in (SESSIONS, TRAJECTORIES, CONTROL, FLEET)]
        places = [(topic.name, n) for topic in topics for n in range(topic.partitions)]
        self._reader.assign(self._reader.ends(places))

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def poll(self) -> None:
        """Take what has arrived."""
        for received in self._reader.poll(0.02):
            self._of_kind[type(received.record)].append((self.mark, received.record))
            self.mark += 1

    def since(
        self, mark: int, kind: type[R], where: Callable[[R], bool] = lambda record: True
    ) -> list[R]:
        """Return such records from a mark on."""
        entries = self._of_kind[kind]
        first = bisect_left(entries, mark, key=itemgetter(0))
        return [record for _, record in entries[first:] if where(record)]

    def finished_since(self, mark: int) -> set[str]:
        """Return the sessions that were opened after the mark and have a trajectory."""
        opened = {record.session_id for record in self.since(mark, r.SessionOpened)}
        return opened & {record.session_id for record in self.since(mark, r.Trajectory)}

    def closed_without_trajectory(self) -> set[str]:
        """Return the sessions that were closed and have no trajectory yet."""
        closed = {record.session_id for record in self.since(0, r.SessionClosed)}
        return closed - {record.session_id for record in self.since(0, r.Trajectory)}
