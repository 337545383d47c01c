"""Erasures on a real broker: the command, and the records that a prefix has."""

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import TOPICS

Place = tuple[str, int, int]
Stored = tuple[bytes, bytes, tuple[tuple[str, bytes], ...], int]


def erase(*arguments: str) -> Result:
    """Run `seamlessflow erase`."""
    return CliRunner().invoke(app, ["erase", *arguments])


def name_cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the cluster and prefix in the environment."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)


def records(kafka: KafkaSettings) -> dict[Place, Stored]:
    """Return all records of a prefix as they stand on its topics, by topic, partition, offset."""
    counts = partition_counts(kafka)
    places = [
        (name, number)
        for topic in TOPICS.values()
        for name in (topic.name, topic.dead_letters)
        for number in range(counts.get(kafka.topic_prefix + name, 0))
    ]
    stored = {}
    for item in read_partitions(kafka, places, rules=ReadingRules(decode=Raw)):
        assert isinstance(item.record, Raw)
        value = item.record.value, item.record.key or b"", tuple(item.headers), item.timestamp_ms
        stored[item.topic, item.partition, item.offset] = value
    return stored
