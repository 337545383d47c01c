"""Comparison of the topics on a cluster with the contract: faults, and the commands that mend them.

Pure but for `topic_faults`. More retention, copies or room for records than the contract has is no
fault.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.counts import least_insync
from seamlessflow.infra.kafka.topics.found import FoundTopic, found_topics
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
    """Return all faults of the topics. Raises `KafkaUnavailable` and `KafkaRefused`."""
    brokers = find_cluster(settings, limit_s=_ANSWER_S).brokers
    names = [name for topic in TOPICS.values() for name in (topic.name, topic.dead_letters)]
    found = found_topics(settings, [settings.topic_prefix + name for name in names])
    return list(faults(settings, found, brokers))


def faults(
    settings: KafkaSettings, found: Mapping[str, FoundTopic], brokers: int
) -> Iterator[TopicFault]:
    """Yield the faults of `found`, by full name, on a cluster of so many brokers."""
    prefix = settings.topic_prefix
    for topic in TOPICS.values():
        own, letters = found.get(prefix + topic.name), found.get(prefix + topic.dead_letters)
        for name, there in ((topic.name, own), (topic.dead_letters, letters)):
            if there is None:
                yield TopicFault(prefix + name, "missing", _CREATE)
        if own is not None:
            yield from _copies(settings, own, brokers)
            yield from _settings(settings, own, topic)
            yield from _partitions(prefix, found, topic, own)
        if letters is not None:
            yield from _letters(settings, letters, topic, own)


def _copies(settings: KafkaSettings, own: FoundTopic, brokers: int) -> Iterator[TopicFault]:
    wanted = min(_COPIES, brokers)
    if own.replication < wanted:
        fault = f"replication {own.replication}, not {wanted}"
        server = f"--bootstrap-server {settings.bootstrap_servers}"
        yield TopicFault(own.name, fault, f"kafka-reassign-partitions.sh {server} --execute ...")
    least, insync = least_insync(own.replication), int(own.config["min.insync.replicas"])
    if insync < least or insync > own.replication:
        fault = f"min.insync.replicas {insync}, not {least}, with replication {own.replication}"
        yield TopicFault(own.name, fault, _alter(settings, own, "min.insync.replicas", least))


def _settings(settings: KafkaSettings, own: FoundTopic, topic: Topic) -> Iterator[TopicFault]:
    config = own.config
    # An empty clean-up policy keeps records for ever, since Kafka 4.2.
    kept = topic.retention_ms == FOR_EVER and config["cleanup.policy"] == ""
    if config["cleanup.policy"] != topic.cleanup and not kept:
        yield _differs(settings, own, "cleanup.policy", topic.cleanup)
    elif not topic.compacted and not kept:
        if _shorter(int(config["retention.ms"]), topic.retention_ms):
            yield _differs(settings, own, "retention.ms", topic.retention_ms)
        if int(config["retention.bytes"]) != FOR_EVER:
            yield _differs(settings, own, "retention.bytes", FOR_EVER)
    if int(config["max.message.bytes"]) < topic.max_record_bytes:
        yield _differs(settings, own, "max.message.bytes", topic.max_record_bytes)
    for name, value in (
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "false"),
    ):
        if config[name] != value:
            yield _differs(settings, own, name, value)


def _partitions(
    prefix: str, found: Mapping[str, FoundTopic], topic: Topic, own: FoundTopic
) -> Iterator[TopicFault]:
    (first, *_), *_ = [group for group in SAME_PARTITIONS if topic in group] or [(topic,)]
    if topic.partitions == 1 and own.partitions != 1:
        yield TopicFault(own.name, f"{own.partitions} partitions, not 1", _ANEW)
    other = found.get(prefix + first.name)
    if other is not None and other.partitions != own.partitions:
        fault = f"{own.partitions} partitions, not {other.partitions} as {other.name}"
        yield TopicFault(own.name, fault, _ANEW)


def _letters(
    settings: KafkaSettings, letters: FoundTopic, topic: Topic, own: FoundTopic | None
) -> Iterator[TopicFault]:
    if own is not None and letters.partitions < own.partitions:
        fault = f"{letters.partitions} partitions, fewer than {own.partitions} of {own.name}"
        server = f"--bootstrap-server {settings.bootstrap_servers} --topic {letters.name}"
        remedy = f"kafka-topics.sh {server} --alter --partitions {own.partitions}"
        yield TopicFault(letters.name, fault, remedy)
    if int(letters.config["max.message.bytes"]) < topic.max_record_bytes:
        yield _differs(settings, letters, "max.message.bytes", topic.max_record_bytes)


def _shorter(found_ms: int, wanted_ms: int) -> bool:
    return found_ms != FOR_EVER and (wanted_ms == FOR_EVER or found_ms < wanted_ms)


def _differs(settings: KafkaSettings, own: FoundTopic, name: str, wanted: object) -> TopicFault:
    fault = f"{name} {own.config[name]}, not {wanted}"
    return TopicFault(own.name, fault, _alter(settings, own, name, wanted))


def _alter(settings: KafkaSettings, own: FoundTopic, name: str, wanted: object) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {settings.bootstrap_servers} --alter "
        f"--entity-type topics --entity-name {own.name} --add-config {name}={wanted}"
    )
