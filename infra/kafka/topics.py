"""Topics of the cluster: create missing ones, look up how those that are there were made."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from infra.errors import (
    KafkaRefused,
    KafkaUnavailable,
    PartitionsDiffer,
    SeamlessFlowError,
    SettingsRejected,
    TopicMismatch,
)
from infra.kafka.client import Partition, client, client_options
from infra.kafka.outage import REFUSALS, Stopping, never
from infra.kafka.start.cluster import find_cluster
from infra.settings import KafkaSettings
from schemas.topics import SAME_PARTITIONS, Topic

_TIMEOUT_S, _ASK_S = 60.0, 2.0
_COPIES = 3
_SHOWN_S, _LOOK_S = 10.0, 0.05
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Wishes for new topics; by default those of the contract, kept on up to three brokers."""

    replication: int | None = None
    """Copies of each partition; -1: the cluster's own default."""
    min_insync: int | None = None
    """Copies that must have a record before it is acknowledged; one less than there are."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Partitions of a topic, by its name without prefix."""
    retention_ms: Mapping[str, int] = field(default_factory=dict)
    """Retention of a topic, by its name without prefix; -1: for ever."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as it is on the cluster."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def create_topics(
    settings: KafkaSettings,
    topics: Iterable[Topic],
    options: TopicOptions | None = None,
    stopping: Stopping = never,
) -> list[str]:
    """Create missing topics and their dead-letter topics; return the names of those created.

    Returns when clients can use them. Waits for Kafka as `find_cluster` does. Raises what
    `topic_counts` raises.
    """
    options, specs = options or TopicOptions(), list(topics)
    brokers = find_cluster(settings, stopping=stopping).brokers
    admin, there = client(AdminClient, client_options(settings)), partition_counts(settings)
    counts = topic_counts(specs, options.partitions, there, settings.topic_prefix)
    copies = options.replication or min(_COPIES, brokers)
    wanted = [
        topic
        for spec in specs
        for topic in _new_topics(settings, spec, counts[spec.name], copies, options)
    ]
    missing = [topic for topic in wanted if topic.topic not in there]
    if missing:
        for name, future in admin.create_topics(missing, operation_timeout=_TIMEOUT_S).items():
            _created(settings, name, future)
        _await_shown(settings, {topic.topic for topic in missing})
    return [topic.topic for topic in missing]


def partition_counts(settings: KafkaSettings, timeout_s: float = 10) -> dict[str, int]:
    """Return the partition count of every topic of the cluster, by full name.

    Without topics that the user may not see. Raises `KafkaUnavailable` and `KafkaRefused`.
    """
    try:
        listed = client(AdminClient, client_options(settings)).list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise _failed(settings, error.args[0], timeout_s) from error
    return {name: len(topic.partitions) for name, topic in listed.topics.items()}


class BoundsLookup:
    """A client that looks up where partitions begin and end now."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._prefix = settings.topic_prefix
        # A consumer must name a group; this one commits nothing.
        options = {"group.id": f"{self._prefix}bounds", **client_options(settings)}
        self._consumer = client(Consumer, options)

    def bounds(
        self, partitions: Sequence[Partition], timeout_s: float
    ) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and that behind its last record.

        Without partitions for which no leader answers in time.
        """
        starts = self._offsets(partitions, OFFSET_BEGINNING, timeout_s)
        ends = self._offsets(list(starts), OFFSET_END, timeout_s)
        return {place: (starts[place], end) for place, end in ends.items()}

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _offsets(
        self, partitions: Sequence[Partition], bound: int, timeout_s: float
    ) -> dict[Partition, int]:
        asked = [TopicPartition(self._prefix + topic, n, bound) for topic, n in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout_s) if asked else []
        except KafkaException:
            return {}
        return {
            (place.topic.removeprefix(self._prefix), place.partition): place.offset
            for place in found
            if place.error is None
        }


class LagLookup:
    """Lookup of how far a reader is behind, by a client of its own. Any thread.

    Calls of another thread to a client that polls without a pause wait for ever.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lookup: BoundsLookup | None = None
        self._closed = False
        self._looking = threading.Lock()

    def behind(self, read: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return how many offsets partitions keep from those in `read` on; empty once closed."""
        with self._looking:
            if self._closed:
                return {}
            self._lookup = self._lookup or BoundsLookup(self._settings)
            found = self._lookup.bounds(list(read), _ASK_S)
        return {place: max(0, end - max(read[place], at)) for place, (at, end) in found.items()}

    def close(self) -> None:
        """Close the client."""
        with self._looking:
            self._closed = True
            if self._lookup is not None:
                self._lookup.close()


def found_topics(settings: KafkaSettings, names: Sequence[str]) -> dict[str, FoundTopic]:
    """Return those of the topics that exist, by full name.

    Raises `KafkaUnavailable`, and `KafkaRefused` for a topic that the user may not describe.
    """
    admin = client(AdminClient, client_options(settings))
    asked = admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_S)
    answers = {name: _answer(settings, name, asked[name]) for name in names}
    there = {name: topic for name, topic in answers.items() if topic is not None}
    if not there:
        return {}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in there]
    configs = {
        resource.name: _answer(settings, resource.name, future)
        for resource, future in admin.describe_configs(
            resources, request_timeout=_TIMEOUT_S
        ).items()
    }
    return {name: _found(topic, configs[name]) for name, topic in there.items()}


def topic_counts(
    specs: Iterable[Topic], asked: Mapping[str, int], there: Mapping[str, int], prefix: str = ""
) -> dict[str, int]:
    """Return the number of partitions by topic: as it exists, as asked for, else the contract's.

    A topic of `SAME_PARTITIONS` has as many as those that must be equal to it. `there` has full
    names. Pure. Raises `TopicMismatch` and `PartitionsDiffer`.
    """
    counts = {}
    for spec in specs:
        wish, have = asked.get(spec.name), there.get(prefix + spec.name)
        if wish and have and wish != have:
            raise TopicMismatch(prefix + spec.name, wish, have)
        group = _must_be_equal(spec)
        found = {name: there.get(prefix + name) or asked.get(name) for name in group or [spec.name]}
        given = {prefix + name: count for name, count in found.items() if count}
        if len(set(given.values())) > 1:
            raise PartitionsDiffer(given)
        counts[spec.name] = next(iter(given.values()), spec.partitions)
        if len(group) == 1 and counts[spec.name] != spec.partitions:
            raise TopicMismatch(prefix + spec.name, spec.partitions, counts[spec.name])
    return counts


def least_insync(copies: int) -> int:
    """Return the copies to wait for: a broker may be away, and no record is on one alone."""
    return max(1, copies - 1)


def _must_be_equal(spec: Topic) -> list[str]:
    """Return the names of the topics, this one included, that `SAME_PARTITIONS` has it among."""
    groups = [[topic.name for topic in group] for group in SAME_PARTITIONS]
    return next((names for names in groups if spec.name in names), [])


def _new_topics(
    settings: KafkaSettings, spec: Topic, partitions: int, copies: int, options: TopicOptions
) -> list[Any]:
    insync = options.min_insync or (least_insync(copies) if copies > 0 else None)
    common = {
        "max.message.bytes": str(spec.max_record_bytes),
        **({"min.insync.replicas": str(insync)} if insync else {}),
    }
    config = {
        **common,
        "retention.ms": str(options.retention_ms.get(spec.name, spec.retention_ms)),
        "cleanup.policy": spec.cleanup,
        **({"segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"} if spec.compacted else {}),
        "message.timestamp.type": "CreateTime",
    }
    letters = {**common, "retention.ms": "-1"}
    return [
        NewTopic(settings.topic_prefix + name, partitions, copies, config=conf)
        for name, conf in ((spec.name, config), (spec.dead_letters, letters))
    ]


def _created(settings: KafkaSettings, name: str, future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        # Another process may have created it since it was found missing.
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if reason.code() in REFUSALS:
            raise KafkaRefused(settings.bootstrap_servers, f"{name}: {reason.str()}") from error
        raise SettingsRejected("topics create", f"{name}: {reason.str()}") from error


def _await_shown(settings: KafkaSettings, names: set[str]) -> None:
    """Return once a broker shows the topics: brokers learn of them after they are made."""
    deadline = time.monotonic() + _SHOWN_S
    while hidden := names - partition_counts(settings).keys():
        if time.monotonic() > deadline:
            _log.warning("made, but not shown to this user yet: %s", ", ".join(sorted(hidden)))
            return
        time.sleep(_LOOK_S)


def _answer(settings: KafkaSettings, topic: str, future: Any) -> Any:
    """Return the answer about a topic, or None if there is no such topic."""
    try:
        return future.result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        named = KafkaError(reason.code(), f"topic {topic}: {reason.str()}")
        raise _failed(settings, named, _TIMEOUT_S) from error


def _failed(settings: KafkaSettings, error: KafkaError, timeout_s: float) -> SeamlessFlowError:
    """Return the error of a request that was not answered."""
    servers = settings.bootstrap_servers
    if error.code() in REFUSALS:
        return KafkaRefused(servers, error.str())
    return KafkaUnavailable(servers, timeout_s, error.str())


def _found(described: Any, config: Mapping[str, Any]) -> FoundTopic:
    copies = min(len(partition.replicas) for partition in described.partitions)
    values = {name: str(entry.value) for name, entry in config.items()}
    return FoundTopic(described.name, len(described.partitions), copies, values)
