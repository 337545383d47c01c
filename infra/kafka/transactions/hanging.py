"""Open transactions in a partition: which of them hang, and their end.

A restart of Kafka may leave out the marker that ends a transaction in a partition (KAFKA-20734).
Readers of committed records then stop there for ever. If it is a partition of `__consumer_offsets`,
managers get no offsets. Kafka's own transaction topic is read from its beginning to its present
end. From that, `verdicts.py` says which end Kafka had decided.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, SettingsRejected
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import BEGINNING, client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.kafka.transactions import wire
from seamlessflow.infra.kafka.transactions.connection import Connection
from seamlessflow.infra.kafka.transactions.verdicts import (
    TOPIC,
    StateRecord,
    Verdict,
    judge,
    state_records,
)
from seamlessflow.infra.kafka.transactions.wire import OpenProducer, TopicPartition
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, TRAJECTORIES

OFFSETS = "__consumer_offsets"
_WRITTEN = (TRAJECTORIES, ENDED_SESSIONS)
_ASK_S = 5.0
_ASK_OF_TOPIC_S = 10.0
_SILENCE_S = 30.0
_POLL_S = 0.5
_BATCH = 1000

WARN_EVERY_S = 30.0
"""Time without committed offsets after which their reader looks for the reason."""
REMEDY = "seamlessflow topics transactions --end"
_log = logging.getLogger(__name__)


def transactional_id(member: str) -> str:
    """Return a manager's transactional id, without prefix, from its name in the group."""
    return f"{TRAJECTORIES.name}-{member}"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition, and what Kafka recorded about it."""

    producer: OpenProducer
    transactional_id: str
    verdict: Verdict

    @property
    def hangs(self) -> bool:
        """True if no marker will come by itself, and the right one is known."""
        return self.verdict in (Verdict.COMMITTED, Verdict.ABORTED)

    def __str__(self) -> str:
        topic, number = self.producer.place
        name = self.transactional_id or "an unknown id"
        owner = f"transaction of {name} (producer {self.producer.producer_id})"
        place = f"{topic}[{number}] from offset {self.producer.start}"
        if self.hangs:
            return f"{owner} hangs in {place}; Kafka had decided: {self.verdict.value}"
        return f"{owner} is open in {place}: {self.verdict.value}"


class TransactionLookup:
    """A client that looks for open transactions in the partitions that managers write to.

    This is cheap while there is none: two requests to each leader.
    """

    def __init__(
        self, kafka: KafkaSettings, stopping: Stopping = never, all_prefixes: bool = False
    ) -> None:
        """Connect; `all_prefixes`: only this project uses the cluster, and every topic counts."""
        self._kafka = kafka
        self._stopping = stopping
        self._all_prefixes = all_prefixes
        self._topics = tuple(kafka.topic_prefix + topic.name for topic in _WRITTEN)
        unnamed = kafka.model_copy(update={"topic_prefix": ""})
        self._stable = BoundsLookup(unnamed, isolation="read_committed")
        self._ends = BoundsLookup(unnamed, isolation="read_uncommitted")

    def close(self) -> None:
        """Close the client."""
        self._stable.close()
        self._ends.close()

    def find(self, limit_s: float = 0.0) -> list[OpenTransaction]:
        """Return the open transactions, also those under way.

        Other programs' transactions, which may also be open in `__consumer_offsets`, are left out.
        Kafka is asked again for up to `limit_s`: after a start, it leads its partitions later.
        Raises `KafkaUnavailable`, `KafkaRefused`, and what `Connection` raises.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            try:
                return self._find()
            except KafkaUnavailable:
                if self._stopping() or time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_S)

    def _find(self) -> list[OpenTransaction]:
        metadata = self._metadata()
        places = self._unstable(metadata)
        if not places:
            return []
        # The order matters: a transaction that began after the history would look as if it hung.
        before = self._producers(metadata, places)
        states = read_states(self._kafka, self._stopping) if before else []
        still_open = set(self._producers(metadata, places)) if before else set()
        transactions = []
        for producer in before:
            judged = judge(states, producer.producer_id, producer.place)
            if producer in still_open and self._may_be_ours(producer, judged.transactional_id):
                transactions.append(
                    OpenTransaction(producer, judged.transactional_id, judged.verdict)
                )
        return transactions

    def end(self, open_one: OpenTransaction) -> None:
        """Write the marker that Kafka had decided on and left out.

        Raises `ValueError` for a transaction that does not hang, else what `find` raises.
        """
        if not open_one.hangs:
            raise ValueError(f"not ended: {open_one}")
        body = wire.write_marker(open_one.producer, open_one.verdict is Verdict.COMMITTED)
        leaders = _leaders(self._metadata(), [open_one.producer.place])
        if not leaders:
            raise _refused(self._kafka, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), str(open_one))
        with Connection(self._kafka, *leaders[open_one.producer.place]) as broker:
            errors = wire.marker_errors(broker.ask(wire.WRITE_MARKERS, body))
        if errors:
            raise _refused(self._kafka, KafkaError(errors[0]), str(open_one))

    def _may_be_ours(self, producer: OpenProducer, name: str) -> bool:
        prefix = self._kafka.topic_prefix + transactional_id("")
        return self._all_prefixes or name.startswith(prefix) or producer.place[0] != OFFSETS

    def _written(self, topic: str) -> bool:
        """Return whether managers write to the topic in transactions."""
        ours = topic.endswith(self._topics) if self._all_prefixes else topic in self._topics
        return ours or topic == OFFSETS

    def _unstable(self, metadata: Any) -> list[TopicPartition]:
        """Return the partitions with records in open transactions."""
        topics = {name: topic for name, topic in metadata.topics.items() if self._written(name)}
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        # In this order: a transaction that ends between the two requests must not look open.
        ends = self._ends.ends(places, _ASK_S)
        stable = self._stable.ends(places, _ASK_S)
        if places and not stable:
            raise _refused(self._kafka, KafkaError(KafkaError._TIMED_OUT), "ends of partitions")
        return [place for place in places if place in stable and stable[place] < ends.get(place, 0)]

    def _producers(self, metadata: Any, places: Iterable[TopicPartition]) -> list[OpenProducer]:
        by_broker: dict[tuple[str, int], list[TopicPartition]] = {}
        for place, address in _leaders(metadata, places).items():
            by_broker.setdefault(address, []).append(place)
        all_producers = []
        for address, of_broker in by_broker.items():
            with Connection(self._kafka, *address) as broker:
                answer = broker.ask(wire.DESCRIBE_PRODUCERS, wire.describe_producers(of_broker))
            producers, errors = wire.open_producers(answer)
            for (topic, number), code in errors.items():
                raise _refused(self._kafka, KafkaError(code), f"producers of {topic}[{number}]")
            all_producers += producers
        return all_producers

    def _metadata(self) -> Any:
        try:
            return self._ends.metadata(_ASK_S)
        except KafkaException as error:
            raise _refused(self._kafka, error.args[0], "topics and their leaders") from error


def warn_of_hanging(kafka: KafkaSettings, stopping: Stopping) -> None:
    """Log each transaction that hangs, with the remedy; nothing if there is none.

    An embedded broker ends it by itself a few seconds later.
    """
    lookup = TransactionLookup(kafka, stopping)
    try:
        for transaction in lookup.find():
            if transaction.hangs:
                _log.warning("no committed offsets come: %s; `%s` ends it", transaction, REMEDY)
    except (KafkaUnavailable, KafkaRefused, SettingsRejected) as error:
        _log.warning("no committed offsets come, and no look at transactions: %s", error)
    finally:
        lookup.close()


def _leaders(
    metadata: Any, places: Iterable[TopicPartition]
) -> Mapping[TopicPartition, tuple[str, int]]:
    """Return the address of each partition's leader; partitions without a leader are left out."""
    addresses = {}
    for topic, number in places:
        topics = metadata.topics.get(topic)
        leader = metadata.brokers.get(topics.partitions[number].leader) if topics else None
        if leader is not None:
            addresses[topic, number] = (leader.host, leader.port)
    return addresses


def read_states(kafka: KafkaSettings, stopping: Stopping) -> list[StateRecord]:
    """Return the states that the topic still has, for all transactional ids.

    Raises `KafkaRefused` without the permission to read it, and `KafkaUnavailable`, also once
    `stopping` or if nothing comes for 30 s.
    """
    options = {
        "group.id": f"{kafka.topic_prefix}transactions",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        **client_options(kafka),
    }
    consumer: Consumer = client(Consumer, options)
    try:
        topic = consumer.list_topics(TOPIC, timeout=_ASK_OF_TOPIC_S).topics[TOPIC]
        left = set(topic.partitions)
        consumer.assign([Position(TOPIC, number, BEGINNING) for number in left])
        records: list[tuple[bytes | None, bytes | None]] = []
        heard_s = time.monotonic()
        while left:
            for message in consumer.consume(_BATCH, _POLL_S):
                heard_s = time.monotonic()
                error = message.error()
                if error is None:
                    records.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
            if left and (stopping() or time.monotonic() - heard_s > _SILENCE_S):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no end of {TOPIC}"))
        return state_records(records)
    except KafkaException as error:
        raise _refused(kafka, error.args[0], f"reading {TOPIC}") from error
    finally:
        consumer.close()


def _refused(kafka: KafkaSettings, error: KafkaError, what: str) -> KafkaRefused | KafkaUnavailable:
    """Return the error for a request that was not answered."""
    servers = kafka.bootstrap_servers
    reason = f"{what}: {error.str()}"
    if error.code() in REFUSALS:
        return KafkaRefused(servers, reason)
    return KafkaUnavailable(servers, _ASK_S, reason)
