"""Reader of records from Kafka, for one thread: every call waits until a running poll returns."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from infra.errors import KafkaUnavailable, TopicMissing
from infra.kafka.client import (
    LARGEST_RECORD_BYTES,
    Partition,
    Received,
    client,
    client_options,
    dead_letter_headers,
)
from infra.kafka.producer import Producer
from infra.settings import KafkaSettings
from schemas.codec import UndecodableRecord, decode
from schemas.records import Record

_POLL_S = 0.1
_BATCH = 500

_NO_LEADER_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
"""Errors of a topic that was created a moment ago, or of a broker that has just restarted."""
_NO_ANSWER = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
}
"""Errors of a cluster that has just started, or that moves the group's coordinator.
`KafkaError.retriable` knows them for transactions only."""
_ASK_S = 5.0
"""Longest single request: signals are handled between two of them."""
_TOPIC_PATIENCE_S = 4.0
"""Time in which an unknown topic may be one that was created a moment ago."""
_CANNOT_GO_ON = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.FENCED_INSTANCE_ID,
}


class Reader:
    """Consumer of assigned partitions, or of those that a Kafka consumer group gives it.

    Records that cannot be decoded go to the dead-letter topic; without a producer for it, `poll`
    raises `UndecodableRecord`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        *,
        group: str | None = None,
        dead_letters: Producer | None = None,
        decode: Callable[[bytes], Record] = decode,
        **options: Any,
    ) -> None:
        self._prefix = settings.topic_prefix
        self._settings = settings
        self._dead_letters = dead_letters
        self._decode = decode
        self._consumer = client(
            Consumer,
            {
                "client.id": client_id,
                "group.id": settings.topic_prefix + (group or client_id),
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": LARGEST_RECORD_BYTES,
                "fetch.max.bytes": 2 * LARGEST_RECORD_BYTES,
                "receive.message.max.bytes": 4 * LARGEST_RECORD_BYTES,
                "fetch.wait.max.ms": 500,
                **({"group.protocol": "consumer"} if group else {}),
                **client_options(settings),
                **options,
            },
        )

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Read exactly these partitions from these offsets (`BEGINNING`, `END` or a number)."""
        self._consumer.assign(self._positions(offsets))

    def add(self, offsets: Mapping[Partition, int]) -> None:
        """Also read these partitions."""
        self._consumer.incremental_assign(self._positions(offsets))

    def remove(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions."""
        self._consumer.incremental_unassign(
            [TopicPartition(self._prefix + topic, number) for topic, number in partitions]
        )

    def subscribe(
        self,
        topics: Sequence[str],
        on_assigned: Callable[[list[Partition]], None] | None = None,
        on_revoked: Callable[[list[Partition]], None] | None = None,
    ) -> None:
        """Join the consumer group.

        The callbacks run inside `poll`; partitions are given up when `on_revoked` returns.
        """

        def assigned(_: Any, positions: list[TopicPartition]) -> None:
            if on_assigned:
                on_assigned(self._partitions(positions))

        def revoked(_: Any, positions: list[TopicPartition]) -> None:
            if on_revoked:
                on_revoked(self._partitions(positions))

        names = [self._prefix + topic for topic in topics]
        self._consumer.subscribe(names, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def poll(self, timeout_s: float) -> list[Received]:
        """Return the records that have arrived, or an empty list after `timeout_s`.

        Raises `KafkaUnavailable` if the client cannot go on.
        """
        # `consume` would wait until the batch is full or the time is over.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        received = []
        for message in (first, *self._consumer.consume(_BATCH, 0)):
            error = message.error()
            if error is not None:
                self._fault(error)
            elif (item := self._decoded(message)) is not None:
                received.append(item)
        return received

    def committed(
        self, partitions: Sequence[Partition], timeout_s: float = 30
    ) -> dict[Partition, tuple[int, str]]:
        """Return committed offsets (-1001 if there is none) and metadata of the consumer group.

        Raises `KafkaUnavailable`.
        """
        asked = [TopicPartition(self._prefix + topic, number) for topic, number in partitions]
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = self._consumer.committed(asked, min(_ASK_S, timeout_s))
                break
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                passing = reason.code() in _NO_COORDINATOR_YET | _NO_ANSWER
                if not passing or time.monotonic() > deadline:
                    servers = self._settings.bootstrap_servers
                    raise KafkaUnavailable(servers, timeout_s, reason.str()) from error
            time.sleep(_POLL_S)
        return {
            (p.topic.removeprefix(self._prefix), p.partition): (p.offset, p.metadata or "")
            for p in found
        }

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the next offsets to read, and wait for it."""
        if offsets:
            self._consumer.commit(offsets=self._positions(offsets), asynchronous=False)

    def ends(self, partitions: Iterable[Partition], timeout_s: float = 30) -> dict[Partition, int]:
        """Return the offset behind the last record of each partition.

        Ask for all at once: each request waits until a running fetch is answered. Raises
        `KafkaUnavailable` if a partition has no leader for all that time, and `TopicMissing`.
        """
        asked = [TopicPartition(self._prefix + t, number, OFFSET_END) for t, number in partitions]
        began = time.monotonic()
        while True:
            found, reason = self._latest(asked, min(_ASK_S, timeout_s))
            if reason is None:
                return {(p.topic.removeprefix(self._prefix), p.partition): p.offset for p in found}
            waited_s = time.monotonic() - began
            if reason.code() in _NO_LEADER_YET and waited_s > min(_TOPIC_PATIENCE_S, timeout_s):
                self._check_there(asked, min(_TOPIC_PATIENCE_S, timeout_s))
            if reason.code() not in _NO_LEADER_YET | _NO_ANSWER or waited_s > timeout_s:
                raise KafkaUnavailable(self._settings.bootstrap_servers, timeout_s, reason.str())
            time.sleep(_POLL_S)

    def position(self, partition: Partition) -> int:
        """Return the offset of the next record that `poll` returns of an assigned partition."""
        place = TopicPartition(self._prefix + partition[0], partition[1])
        return int(self._consumer.position([place])[0].offset)

    def group_metadata(self) -> Any:
        """Return what a transaction needs to commit offsets for this reader's consumer group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the consumer group."""
        self._consumer.close()

    def _latest(
        self, asked: list[TopicPartition], timeout_s: float
    ) -> tuple[list[TopicPartition], KafkaError | None]:
        """Return the ends of partitions, and the error of one whose end is unknown."""
        if not asked:
            return [], None
        try:
            found = self._consumer.offsets_for_times(asked, timeout_s)
        except KafkaException as error:
            return [], error.args[0]
        return found, next((place.error for place in found if place.error is not None), None)

    def _check_there(self, asked: list[TopicPartition], timeout_s: float) -> None:
        """Raise `TopicMissing` if the cluster answers and a topic is not there."""
        try:
            there = self._consumer.list_topics(timeout=timeout_s).topics
        except KafkaException:
            return
        for place in asked:
            if place.topic not in there:
                raise TopicMissing(place.topic, self._settings.bootstrap_servers)

    def _fault(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _CANNOT_GO_ON:
            raise KafkaUnavailable(self._settings.bootstrap_servers, 0, error.str())

    def _decoded(self, message: Message) -> Received | None:
        value = message.value()
        if value is None:
            return None
        try:
            record = self._decode(value)
        except UndecodableRecord as error:
            self._send_to_dead_letters(message, str(error))
            return None
        key = message.key()
        return Received(
            str(message.topic()).removeprefix(self._prefix),
            int(message.partition() or 0),
            int(message.offset() or 0),
            message.timestamp()[1],
            key.decode() if isinstance(key, bytes) else key,
            message.headers() or (),  # type: ignore[arg-type]
            record,
        )

    def _send_to_dead_letters(self, message: Message, reason: str) -> None:
        topic = str(message.topic()).removeprefix(self._prefix)
        if self._dead_letters is None:
            raise UndecodableRecord(f"{topic}[{message.partition()}]@{message.offset()}: {reason}")
        self._dead_letters.send_bytes(
            f"{topic}.dlq",
            message.value(),
            message.key(),
            message.partition(),
            dead_letter_headers(topic, message.partition(), message.offset(), reason),
        )

    def _positions(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        return [
            TopicPartition(self._prefix + topic, number, offset)
            for (topic, number), offset in offsets.items()
        ]

    def _partitions(self, positions: Iterable[TopicPartition]) -> list[Partition]:
        return [(p.topic.removeprefix(self._prefix), p.partition) for p in positions]
