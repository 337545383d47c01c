"""`seamlessflow schemas` on a cluster: copies for a registry, and who reads the newest release."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from fastavro import parse_schema, schemaless_reader
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.interchange.schema_registry import RegistryFailed
from seamlessflow.recorded.interchange.topic_copy import Copied, CopyRefused, copy_topic
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record, RewardAssigned
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import FLEET, SESSIONS, Topic, fleet_key
from tests.builders.records import fleet, sessions
from tests.builders.schemas.made_up import FIRST, copy_of_product, encoder
from tests.builders.schemas.schema_registry import MockRegistry, mock_registry
from tests.waiting import until

SOURCE = Topic(SESSIONS.name, 2, SESSIONS.retention_ms, SESSIONS.records)
COPY = "sessions.confluent"
HEADERS = [("traceparent", b"00-1-2-01")]
YEAR_2020_MS = 1_577_836_800_000


@dataclass
class Source:
    """The topic that is copied, with a registry."""

    kafka: KafkaSettings
    registry: MockRegistry
    producer: Producer

    def write(self, *values: Record | bytes, partition: int = 0) -> None:
        """Append records, or bytes as they are."""
        for value in values:
            raw = value if isinstance(value, bytes) else self.producer.encode(value)
            key = None if isinstance(value, bytes) else "s"
            self.producer.send_bytes(
                SOURCE.name, raw, key, partition, HEADERS, timestamp_ms=YEAR_2020_MS
            )
        self.producer.flush(60)

    def copy(self) -> Copied:
        """Copy what is new."""
        return copy_topic(self.kafka, SOURCE.name, COPY, self.registry.url, lambda *_: None)

    def copied(self, count: int) -> list[Message]:
        """Return the records of the copy, at least `count`, as any client reads them."""
        messages: list[Message] = []
        options = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "any"}
        with closing(Consumer(options)) as consumer:
            name = self.kafka.topic_prefix + COPY
            places = [TopicPartition(name, n, OFFSET_BEGINNING) for n in range(SOURCE.partitions)]
            consumer.assign(places)

            def arrived() -> bool:
                messages.extend(consumer.consume(100, 0.3))
                return len(messages) >= count

            until(arrived, "the copy")
        return messages

    def decoded(self, message: Message) -> tuple[str, object]:
        """Return name and fields of a copied record, read with the registry's schema alone."""
        value = message.value() or b""
        assert value[:1] == b"\0"
        schema = parse_schema(json.loads(self.registry.schemas[int.from_bytes(value[1:5]) - 1]))
        assert isinstance(schema, dict)
        return schema["name"], schemaless_reader(BytesIO(value[5:]), schema, None)


@pytest.fixture
def source(kafka: KafkaSettings) -> Iterator[Source]:
    create_topics(kafka, [SOURCE])
    with mock_registry() as registry, closing(Producer(kafka, "writer")) as producer:
        yield Source(kafka, registry, producer)


def test_a_copy_is_read_with_the_registry_alone_and_keeps_all_but_the_framing(
    source: Source,
) -> None:
    source.write(sessions.rewarded(1.0), encode(sessions.rewarded(2.0)), sessions.closed())
    source.write(sessions.finalized(), b"garbage", partition=1)

    assert source.copy() == Copied(records=4, garbage=1)

    messages = source.copied(4)
    read = [source.decoded(message) for message in messages]
    assert sorted(name for name, _ in read) == [
        *("seamlessflow.RewardAssigned", "seamlessflow.RewardAssigned"),
        *("seamlessflow.SessionClosed", "seamlessflow.SessionFinalized"),
    ]
    rewards = [fields for name, fields in read if name.endswith(RewardAssigned.__name__)]
    assert [fields["reward"]["value"] for fields in rewards if isinstance(fields, dict)] == [1, 2]
    assert {(m.partition(), m.timestamp()[1]) for m in messages} == {
        (0, YEAR_2020_MS),
        (1, YEAR_2020_MS),
    }
    assert [m.headers() for m in messages] == 4 * [HEADERS]
    assert sorted(m.key() or b"" for m in messages) == [b"", b"s", b"s", b"s"]
    name = source.kafka.topic_prefix + COPY
    assert {subject: len(ids) for subject, ids in source.registry.subjects.items()} == {
        f"{name}-seamlessflow.RewardAssigned": 1,
        f"{name}-seamlessflow.SessionClosed": 1,
        f"{name}-seamlessflow.SessionFinalized": 1,
    }


def test_each_version_of_a_record_is_registered(source: Source, tmp_path: Path) -> None:
    copy_of_product(tmp_path)
    source.write(sessions.rewarded(1.0), encoder(FIRST)(sessions.rewarded(2.0)))

    arguments = [SOURCE.name, "--to", COPY, "--registry", source.registry.url]
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "seamlessflow", "schemas", "copy"),
            *(*arguments, "--framing", "confluent"),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": source.kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": source.kafka.topic_prefix,
        },
        check=True,
        timeout=60,
    )

    read = [source.decoded(message)[1] for message in source.copied(2)]
    assert [fields["reward"]["value"] for fields in read if isinstance(fields, dict)] == [1, 2]
    (versions,) = source.registry.subjects.values()
    assert len(set(versions)) == 2


def test_a_copy_goes_on_where_it_ended_also_after_a_registry_that_refused(source: Source) -> None:
    source.registry.refuses = True
    source.write(sessions.rewarded(1.0))
    with pytest.raises(RegistryFailed, match="409") as error:
        source.copy()
    assert error.value.lasting
    source.registry.refuses = False
    assert source.copy() == Copied(records=1)

    source.write(sessions.rewarded(2.0), sessions.rewarded(3.0), partition=1)
    assert source.copy() == Copied(records=2)
    assert source.copy() == Copied()
    assert len(source.copied(3)) == 3


def test_a_copy_into_records_of_another_origin_is_refused(source: Source) -> None:
    create_topics(source.kafka, [Topic(COPY, SOURCE.partitions, SOURCE.retention_ms, ())])
    source.producer.send_bytes(COPY, b"theirs")
    source.producer.flush(60)

    with pytest.raises(CopyRefused, match="it has records"):
        source.copy()
    with pytest.raises(CopyRefused, match="processes read that topic"):
        copy_topic(source.kafka, SOURCE.name, "control", source.registry.url, lambda *_: None)


def test_processes_are_listed_with_their_releases(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(kafka, [FLEET])
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    release = this_release().version
    with closing(Producer(kafka, "writer")) as producer:

        def beat(gateway: str, release: str) -> None:
            record = fleet.gateway(gateway, at_ms=now_ms(), release=release)
            producer.send(FLEET.name, record, key=fleet_key(record))
            producer.flush(60)

        beat("new", release)
        passed = CliRunner().invoke(app, ["schemas", "check"])
        beat("old", "")
        failed = CliRunner().invoke(app, ["schemas", "check"])

    assert passed.exit_code == 0, passed.output
    assert f"1 of 1 processes read release {release}" in passed.output
    assert failed.exit_code == 1
    assert "gateway old: older than 0.1.0" in failed.output
    assert "1 of 2 processes cannot read release" in failed.output
