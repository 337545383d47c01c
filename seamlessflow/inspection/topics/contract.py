"""Comparison of the topics on a cluster with the contract: faults, and the commands that mend them.

Pure except for `topic_faults`. A topic may have more retention, copies or room for records than the
contract.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import FoundTopic, found_topics
from seamlessflow.infra.kafka.topics.partitions import least_insync
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import FOR_EVER, SAME_PARTITIONS, TOPICS, Topic

_ANSWER_S = 10.0
_COPIES = 3
_CREATE = "seamlessflow topics create"
_ANEW = "partition counts never change: set another kafka.topic_prefix, or delete the topic"


@dataclass(frozen=True, slots=True)
class TopicFault:
    """A difference between a topic and the contract, and the way to mend it."""

    topic: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.fault}\n    {self.remedy}"


def topic_faults(settings: KafkaSettings) -> list[TopicFault]:
    """Return all the topics' faults. Raises `KafkaUnavailable` and `KafkaRefused`."""
    brokers = find_cluster(settings, limit_s=_ANSWER_S).brokers
    names = [name for topic in TOPICS.values() for name in (topic.name, topic.dead_letters)]
    topics = found_topics(settings, [settings.topic_prefix + name for name in names])
    return list(faults(settings, topics, brokers))


def faults(
    settings: KafkaSettings, topics: Mapping[str, FoundTopic], brokers: int
) -> Iterator[TopicFault]:
    """Yield the faults of `topics`, by full name, on a cluster with `brokers` brokers."""
    prefix = settings.topic_prefix
    for topic in TOPICS.values():
        source = topics.get(prefix + topic.name)
        letters = topics.get(prefix + topic.dead_letters)
        for name, existing in ((topic.name, source), (topic.dead_letters, letters)):
            if existing is None:
                yield TopicFault(prefix + name, "missing", _CREATE)
        if source is not None:
            yield from _copies(settings, source, brokers)
            yield from _settings(settings, source, topic)
            yield from _partitions(prefix, topics, topic, source)
        if letters is not None:
            yield from _letters(settings, letters, topic, source)


def _copies(settings: KafkaSettings, existing: FoundTopic, brokers: int) -> Iterator[TopicFault]:
    wanted = min(_COPIES, brokers)
    if existing.replication < wanted:
        fault = f"replication {existing.replication}, not {wanted}"
        server = f"--bootstrap-server {settings.bootstrap_servers}"
        yield TopicFault(
            existing.name, fault, f"kafka-reassign-partitions.sh {server} --execute ..."
        )
    least = least_insync(existing.replication)
    insync = int(existing.config["min.insync.replicas"])
    if insync < least or insync > existing.replication:
        fault = (
            f"min.insync.replicas {insync}, not {least}, with replication {existing.replication}"
        )
        yield TopicFault(
            existing.name, fault, _alter(settings, existing, "min.insync.replicas", least)
        )


def _settings(settings: KafkaSettings, existing: FoundTopic, topic: Topic) -> Iterator[TopicFault]:
    config = existing.config
    # An empty clean-up policy keeps records for ever, since Kafka 4.2.
    kept = topic.retention_ms == FOR_EVER and config["cleanup.policy"] == ""
    if config["cleanup.policy"] != topic.cleanup and not kept:
        yield _differs(settings, existing, "cleanup.policy", topic.cleanup)
    elif not topic.compacted and not kept:
        if _shorter(int(config["retention.ms"]), topic.retention_ms):
            yield _differs(settings, existing, "retention.ms", topic.retention_ms)
        if int(config["retention.bytes"]) != FOR_EVER:
            yield _differs(settings, existing, "retention.bytes", FOR_EVER)
    if int(config["max.message.bytes"]) < topic.max_record_bytes:
        yield _differs(settings, existing, "max.message.bytes", topic.max_record_bytes)
    for name, value in (
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "false"),
    ):
        if config[name] != value:
            yield _differs(settings, existing, name, value)


def _partitions(
    prefix: str, topics: Mapping[str, FoundTopic], topic: Topic, existing: FoundTopic
) -> Iterator[TopicFault]:
    (first, *_), *_ = [group for group in SAME_PARTITIONS if topic in group] or [(topic,)]
    if topic.partitions == 1 and existing.partitions != 1:
        yield TopicFault(existing.name, f"{existing.partitions} partitions, not 1", _ANEW)
    other = topics.get(prefix + first.name)
    if other is not None and other.partitions != existing.partitions:
        fault = f"{existing.partitions} partitions, not {other.partitions} as {other.name}"
        yield TopicFault(existing.name, fault, _ANEW)


def _letters(
    settings: KafkaSettings, letters: FoundTopic, topic: Topic, source: FoundTopic | None
) -> Iterator[TopicFault]:
    if source is not None and letters.partitions < source.partitions:
        fault = f"{letters.partitions} partitions, fewer than {source.partitions} of {source.name}"
        server = f"--bootstrap-server {settings.bootstrap_servers} --topic {letters.name}"
        remedy = f"kafka-topics.sh {server} --alter --partitions {source.partitions}"
        yield TopicFault(letters.name, fault, remedy)
    if int(letters.config["max.message.bytes"]) < topic.max_record_bytes:
        yield _differs(settings, letters, "max.message.bytes", topic.max_record_bytes)


def _shorter(found_ms: int, wanted_ms: int) -> bool:
    return found_ms != FOR_EVER and (wanted_ms == FOR_EVER or found_ms < wanted_ms)


def _differs(
    settings: KafkaSettings, existing: FoundTopic, name: str, wanted: object
) -> TopicFault:
    fault = f"{name} {existing.config[name]}, not {wanted}"
    return TopicFault(existing.name, fault, _alter(settings, existing, name, wanted))


def _alter(settings: KafkaSettings, existing: FoundTopic, name: str, wanted: object) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {settings.bootstrap_servers} --alter "
        f"--entity-type topics --entity-name {existing.name} --add-config {name}={wanted}"
    )
