"""Partitions' bounds as they are now, and how far a reader is behind them."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaException,
    TopicPartition,
)

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import LogPartition, client, client_options
from seamlessflow.infra.settings import KafkaSettings

_ASK_S = 2.0


class BoundsLookup:
    """A client that looks up where partitions begin and end now."""

    def __init__(self, settings: KafkaSettings, isolation: str = "read_committed") -> None:
        """Connect.

        With the isolation `read_committed` a partition ends at its last stable offset: before an
        open transaction's first record.
        """
        self._prefix = settings.topic_prefix
        self._options = {
            # A consumer must name a group; this one commits nothing.
            "group.id": f"{self._prefix}bounds",
            "isolation.level": isolation,
            **client_options(settings),
        }
        self._consumer = client(Consumer, self._options)
        self._counts: dict[str, int] = {}
        """Partition counts of the topics that were asked for."""

    def bounds(
        self, partitions: Sequence[LogPartition], timeout_s: float
    ) -> dict[LogPartition, tuple[int, int]]:
        """Return each partition's first offset, and the offset behind its last record.

        A partition is left out if no leader answers for it in time.
        """
        starts = self._offsets(partitions, OFFSET_BEGINNING, timeout_s)
        ends = self._offsets(list(starts), OFFSET_END, timeout_s)
        return {place: (starts[place], end) for place, end in ends.items()}

    def ends(self, partitions: Sequence[LogPartition], timeout_s: float) -> dict[LogPartition, int]:
        """Return the offset behind each partition's last record, as `bounds` does."""
        return self._offsets(partitions, OFFSET_END, timeout_s)

    def since(
        self, partitions: Sequence[LogPartition], at_ms: int, timeout_s: float
    ) -> dict[LogPartition, int]:
        """Return the offset of each partition's first record at this time or later.

        A partition is left out if it has no such record, or no leader answers for it in time.
        """
        offsets = self._offsets(partitions, at_ms, timeout_s)
        return {place: offset for place, offset in offsets.items() if offset >= 0}

    def partitions(self, topic: str, timeout_s: float) -> list[LogPartition]:
        """Return a topic's partitions; none if it is missing. Raises `KafkaUnavailable`.

        They never change, so a topic is asked for once.
        """
        if topic not in self._counts:
            name = self._prefix + topic
            try:
                metadata = self._consumer.list_topics(name, timeout=timeout_s).topics[name]
            except KafkaException as error:
                self._renew()
                servers = str(self._options["bootstrap.servers"])
                raise KafkaUnavailable(servers, timeout_s, error.args[0].str()) from error
            if metadata.error is not None:
                return []
            self._counts[topic] = len(metadata.partitions)
        return [(topic, number) for number in range(self._counts[topic])]

    def metadata(self, timeout_s: float) -> Any:
        """Return brokers, topics and leaders. Raises `KafkaException`."""
        return self._consumer.list_topics(timeout=timeout_s)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _offsets(
        self, partitions: Sequence[LogPartition], time: int, timeout_s: float
    ) -> dict[LogPartition, int]:
        asked = [TopicPartition(self._prefix + topic, n, time) for topic, n in partitions]
        try:
            places = self._consumer.offsets_for_times(asked, timeout_s) if asked else []
        except KafkaException:
            self._renew()
            return {}
        return {
            (place.topic.removeprefix(self._prefix), place.partition): place.offset
            for place in places
            if place.error is None
        }

    def _renew(self) -> None:
        """Make another client.

        This one may have lost all brokers for ever (`BrokerWatch`), and is not polled.
        """
        self._consumer.close()
        self._consumer = client(Consumer, self._options)


class LagLookup:
    """Lookup, with its own client, for how far a reader is behind. Any thread.

    If one thread polls a client without a pause, another thread's calls to it wait for ever.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lookup: BoundsLookup | None = None
        self._closed = False
        self._looking = threading.Lock()

    def behind(self, read: Mapping[LogPartition, int]) -> dict[LogPartition, int]:
        """Return how many offsets each partition has from `read` on; empty once closed."""
        with self._looking:
            if self._closed:
                return {}
            self._lookup = self._lookup or BoundsLookup(self._settings)
            bounds = self._lookup.bounds(list(read), _ASK_S)
        return {place: max(0, end - max(read[place], at)) for place, (at, end) in bounds.items()}

    def close(self) -> None:
        """Close the client."""
        with self._looking:
            self._closed = True
            if self._lookup is not None:
                self._lookup.close()
