"""The plan of a run whose steps are on Kafka."""

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import LineageStarted, Record
from seamlessflow.schemas.topics import CONTROL
from tests.builders.own_topics import small
from tests.builders.records import control

LINEAGE = LineageStarted(at_ms=0, policy="p", lineage="a", step=0, settings=b'{"run": {"lag": 2}}')
WORKERS: list[Record] = [
    control.claimed(),
    LINEAGE,
    control.joined("a", devices=(0, 1)),
    control.joined("b", devices=(2, 3)),
    control.acquired("b"),
    control.acquired("a", "train", 1, at_ms=100),
    control.usage("b", decoding_ms=2_000, full_batch_ms=500, at_ms=2_000),
]
STEPS: list[Record] = [
    record
    for step in range(2)
    for record in (
        control.started(["a"], step, at_ms=1_000 * step + 500, devices=2),
        control.completed(step, at_ms=1_000 * step + 1_000),
    )
]


def test_gang_lag_and_strategy_are_those_of_the_records(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    create_topics(kafka, small(CONTROL))
    producer = Producer(kafka, "test")
    for record in (*WORKERS, *STEPS):
        producer.send(CONTROL.name, record, key="control", partition=0)
    producer.flush(60)
    producer.close()

    output = CliRunner().invoke(app, ["plan", "--kafka"]).stdout

    assert (
        "disaggregated, since no worker changed its role; lag 2, as its trainer recorded" in output
    )
    assert "and 2 are in the gang of now" in output, "all four could train"
