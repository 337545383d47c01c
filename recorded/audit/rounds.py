"""Rounds of reading: each reads an audit's topics up to ends that belong together.

A record on one topic promises another record on the next. The ends are measured against this flow:
first the topic that promises, then the one that keeps the promise. So a running system never shows
a promise without the record that keeps it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES, Topic

AGAINST_THE_FLOW = (CONTROL, TRAJECTORIES, REPLIES, SESSIONS, REQUESTS)
"""Commits promise trajectories and tokens. Trajectories and replies promise events, and these
answer commands."""
_NEEDED = (CONTROL.name, SESSIONS.name, TRAJECTORIES.name)
_ASK_S = 5.0
_ANSWER_S = 20.0
"""Longest wait for an answer about a partition; meanwhile it gets another leader."""
_POLL_S = 0.2
_MOST_SILENT_POLLS = 150


class RecordsRemoved(SeamlessFlowError):
    """Retention removed records before the audit had read them."""

    lasting = False

    def __init__(self, place: LogPartition, position: int, start: int) -> None:
        self.place = place
        self.position = position
        self.start = start
        topic, number = place
        super().__init__(
            f"{topic}[{number}] begins at offset {start}, the audit had read to {position}: "
            "start it again"
        )


@dataclass(frozen=True, slots=True)
class ManagersProgress:
    """Progress that the managers committed, by partition."""

    requests: Mapping[int, int]
    """Offset on `requests` before which each command was settled."""
    covered: Mapping[int, int]
    """Offset on `sessions` before which each trajectory was committed."""


class Rounds:
    """Reader of the topics, for one thread. A context manager.

    Raises `KafkaUnavailable` if Kafka does not answer, and once `stopping`. If a round was cut
    short, the next round goes on from there.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        skipped: Skipped,
        stopping: Stopping,
        topics: Sequence[Topic] = AGAINST_THE_FLOW,
    ) -> None:
        """Find the topics; `group` is the managers' Kafka consumer group."""
        self._settings = settings
        self._skipped = skipped
        self._stopping = stopping
        cluster = find_cluster(settings, topics, stopping)
        self._places = {
            topic.name: [(topic.name, number) for number in cluster.numbers(topic)]
            for topic in topics
        }
        self._bounds = BoundsLookup(settings)
        options: dict[str, Any] = {"enable.partition.eof": True}
        self._reader = Reader(settings, "reading", stopping=stopping, **options)
        self._progress_reader = Reader(settings, "reading", group=group, stopping=stopping)
        self._positions: dict[LogPartition, int] = {}
        self._ends: dict[LogPartition, int] = {}
        """End of each partition that the round has still to read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()
        self._progress_reader.close()
        self._bounds.close()

    notices: Sequence[str] = ()
    """Sentences about what an audit of these topics leaves out."""

    @property
    def partitions(self) -> int:
        """Partition count of `sessions`."""
        return len(self._places[SESSIONS.name])

    def progress(self) -> ManagersProgress:
        """Return the managers' progress; the next measured round reads all that it covers."""
        self._progress_reader.poll(0)  # so that a client that lost all brokers is replaced
        committed = self._progress_reader.committed(self._places[REQUESTS.name])
        entries = {number: entry for (_, number), entry in committed.items() if entry[0] >= 0}
        # `epoch,rebuild,covered,rebuild_epoch`, as docs/manager/ownership.md has it.
        parts = {number: metadata.split(",") for number, (_, metadata) in entries.items()}
        return ManagersProgress(
            requests={number: offset for number, (offset, _) in entries.items()},
            covered={number: int(fields[2]) for number, fields in parts.items() if len(fields) > 2},
        )

    def measure(self) -> set[LogPartition]:
        """Begin a round: measure all ends; return the partitions whose first records are gone."""
        self._ends.clear()
        gone = set()
        for places in self._places.values():
            for place, (start, end) in self._found(places).items():
                if self._removed(place, start):
                    gone.add(place)
                self._positions[place] = max(self._positions.get(place, 0), start)
                if end > self._positions[place]:
                    self._ends[place] = end
        return gone

    def _found(self, places: Sequence[LogPartition]) -> Mapping[LogPartition, tuple[int, int]]:
        """Return the partitions' bounds; ask again while some have no leader."""
        outage = Outage(self._settings, self._stopping, _ANSWER_S)
        bounds = self._bounds.bounds(places, _ASK_S)
        while silent := [place for place in places if place not in bounds]:
            outage.endure_silence(f"no answer about {silent[0]}")
            bounds |= self._bounds.bounds(silent, _ASK_S)
        return bounds

    def read(self) -> Iterator[Received]:
        """Yield all records up to the measured ends, each partition's in order."""
        self._reader.assign({place: self._positions[place] for place in self._ends})
        silent = 0
        while self._ends:
            batch = self._reader.poll(_POLL_S)
            silent = 0 if batch else silent + 1
            if silent > _MOST_SILENT_POLLS or self._stopping():
                reason = f"no more records of {list(self._ends)}"
                raise KafkaUnavailable(self._settings.bootstrap_servers, silent * _POLL_S, reason)
            for item in batch:
                place = item.topic, item.partition
                if item.offset >= self._ends.get(place, 0):
                    continue
                self._positions[place] = item.offset + 1
                if isinstance(item.record, Unreadable):
                    self._skipped.apply(item.topic, item.record)
                else:
                    yield item
            self._drop_read()
        self._reader.assign({})

    def _drop_read(self) -> None:
        for place, end in list(self._ends.items()):
            # Behind the last record may stand the ends of transactions.
            if self._reader.position(place) >= end:
                self._positions[place] = self._ends.pop(place)

    def _removed(self, place: LogPartition, start: int) -> bool:
        """Return True if retention removed records that were not read yet."""
        position = self._positions.get(place, 0)
        if start > position and place in self._positions and place[0] in _NEEDED:
            raise RecordsRemoved(place, position, start)
        return start > position
