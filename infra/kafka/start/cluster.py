"""The Kafka cluster as a process finds it at start: its id and its topics' partitions.

Every process asks for it before anything else. So it waits, as long as `kafka.wait_s` says, for a
Kafka that is away or recovering.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import (
    KafkaUnavailable,
    PartitionsDiffer,
    TopicMismatch,
    TopicMissing,
)
from seamlessflow.infra.kafka.client import client, client_options
from seamlessflow.infra.kafka.outage import ASK_S, REFUSALS, Outage
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import SAME_PARTITIONS, Topic

_TOPIC_PATIENCE_S = 4.0
"""Time for which a missing topic may be one that was created a moment ago."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that answers."""

    id: str
    brokers: int
    partitions: Mapping[str, int]
    """Partition count of each topic that was asked for, by name without prefix."""

    def numbers(self, topic: Topic) -> range:
        """Return the topic's partition numbers."""
        return range(self.partitions[topic.name])


def find_cluster(
    settings: KafkaSettings,
    topics: Iterable[Topic] = (),
    stopping: Stopping = never,
    limit_s: float | None = None,
) -> Cluster:
    """Wait until the cluster answers and each partition of `topics` has a leader; return it.

    Raises `KafkaUnavailable` after `limit_s` (None: `kafka.wait_s`) or once `stopping`. Raises
    `KafkaRefused` for wrong credentials or missing permissions, and `TopicMissing`. Raises
    `TopicMismatch` or `PartitionsDiffer` for partition counts that do not fit together.
    """
    inquiry = _Inquiry(settings, list(topics))
    outage = Outage(settings, stopping, limit_s)
    missing: Outage | None = None
    while True:
        try:
            cluster = inquiry.answer()
            break
        except TopicMissing as error:
            missing = missing or Outage(settings, stopping, min(_TOPIC_PATIENCE_S, outage.limit_s))
            try:
                missing.endure_silence(f"no {error.topic} yet")
            except KafkaUnavailable:
                raise error from None
        except KafkaException as error:
            outage.endure(inquiry.refusal or error.args[0])
    _check_partitions(cluster.partitions, settings.topic_prefix)
    return cluster


@dataclass
class _Inquiry:
    """The question that is repeated, and the brokers' reason if they refuse the connection."""

    settings: KafkaSettings
    topics: Sequence[Topic]
    refusal: KafkaError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        options = {**client_options(self.settings), "error_cb": self._note}
        self._admin: AdminClient = client(AdminClient, options)

    def answer(self) -> Cluster:
        """Return the cluster. Raises `KafkaException` and `TopicMissing`."""
        try:
            described = self._admin.describe_cluster(request_timeout=ASK_S).result()
            partitions = {topic.name: self._partitions(topic) for topic in self.topics}
            return Cluster(str(described.cluster_id), len(described.nodes), partitions)
        finally:
            self._admin.poll(0)  # calls `_note`: requests only time out after a refusal

    def _partitions(self, topic: Topic) -> int:
        name = self.settings.topic_prefix + topic.name
        # Not `list_topics`: it may create a missing topic, and leaves out one that may not be seen.
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=ASK_S)
        try:
            description = asked[name].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(name, self.settings.bootstrap_servers) from error
            raise KafkaException(_about(name, error.args[0])) from error
        for partition in description.partitions:
            if partition.leader is None or partition.leader.id < 0:
                place = f"{name}[{partition.id}] has no leader"
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, place))
        return len(description.partitions)

    def _note(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self.refusal = error


def _about(topic: str, error: KafkaError) -> KafkaError:
    return KafkaError(error.code(), f"topic {topic}: {error.str()}")


def _check_partitions(counts: Mapping[str, int], prefix: str) -> None:
    """Raise `TopicMismatch` or `PartitionsDiffer` for counts that do not fit together."""
    for group in SAME_PARTITIONS:
        present = {prefix + t.name: counts[t.name] for t in group if t.name in counts}
        if len(set(present.values())) > 1:
            raise PartitionsDiffer(present)
        for name, count in present.items():
            if len(group) == 1 and count != group[0].partitions:
                raise TopicMismatch(name, group[0].partitions, count)
