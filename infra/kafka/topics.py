"""Cluster and topics: look up the cluster's id and its topics, create missing ones."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.errors import KafkaUnavailable, TopicMismatch
from infra.kafka.client import client, client_options
from infra.settings import KafkaSettings
from schemas.topics import Topic


def cluster_id(settings: KafkaSettings, timeout_s: float) -> str:
    """Return the id of the cluster. Raises `KafkaUnavailable` if no broker answers in time."""
    admin = client(AdminClient, client_options(settings))
    deadline = time.monotonic() + timeout_s
    reason = ""
    while time.monotonic() < deadline:
        try:
            answer = admin.describe_cluster(request_timeout=min(2.0, timeout_s)).result(timeout_s)
            return str(answer.cluster_id)
        except (KafkaException, TimeoutError) as error:
            reason = str(error)
    raise KafkaUnavailable(settings.bootstrap_servers, timeout_s, reason)


def create_topics(
    settings: KafkaSettings, topics: Iterable[Topic], replication: int = 1, timeout_s: float = 60
) -> list[str]:
    """Create missing topics and their dead-letter topics; return the names of those created.

    Raises `TopicMismatch` if one exists with another partition count.
    """
    admin = client(AdminClient, client_options(settings))
    wanted = [topic for spec in topics for topic in _new_topics(settings, spec, replication)]
    there = partition_counts(settings, timeout_s)
    for topic in wanted:
        have = there.get(topic.topic)
        if have is not None and have != topic.num_partitions:
            raise TopicMismatch(topic.topic, topic.num_partitions, have)
    missing = [topic for topic in wanted if topic.topic not in there]
    if missing:
        for name, future in admin.create_topics(missing, operation_timeout=timeout_s).items():
            _created(name, future)
    return [topic.topic for topic in missing]


def partition_counts(settings: KafkaSettings, timeout_s: float = 10) -> dict[str, int]:
    """Return the partition count of every topic of the cluster, by full name."""
    try:
        listed = client(AdminClient, client_options(settings)).list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise KafkaUnavailable(settings.bootstrap_servers, timeout_s, str(error)) from error
    return {name: len(topic.partitions) for name, topic in listed.topics.items()}


def _new_topics(settings: KafkaSettings, spec: Topic, replication: int) -> list[Any]:
    config = {
        "retention.ms": str(spec.retention_ms),
        "cleanup.policy": "compact" if spec.compacted else "delete",
        "max.message.bytes": str(spec.max_record_bytes),
        **({"segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"} if spec.compacted else {}),
        "message.timestamp.type": "CreateTime",
    }
    letters = {"retention.ms": "-1", "max.message.bytes": config["max.message.bytes"]}
    return [
        NewTopic(settings.topic_prefix + name, spec.partitions, replication, config=conf)
        for name, conf in ((spec.name, config), (spec.dead_letters, letters))
    ]


def _created(name: str, future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        # Another process may have created it since it was found missing.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
