"""Observers of a log with garbage and with records of a newer release: they count, and go on."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.verify import verify
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, TRAJECTORIES, Topic
from seamlessflow.watching.observer import Observer
from seamlessflow.watching.progress import RunProgress
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.own_topics import SMALL
from tests.builders.records import control, fleet, sessions
from tests.waiting import until

PARTITION = partition_of(sessions.SESSION, SMALL[SESSIONS.name].partitions)
DAMAGED: Sequence[tuple[Topic, int, Record]] = (
    (CONTROL, 0, control.lost()),
    (FLEET, 0, fleet.heartbeat("w")),
    (SESSIONS, PARTITION, sessions.opened()),
    (TRAJECTORIES, 0, control.lost()),
)


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return a log with one session, garbage and newer records; the environment names it."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    create_topics(kafka, SMALL.values())
    for topic, partition, record in DAMAGED:
        litter(kafka, topic, partition, record)
        append_newer(kafka, topic, partition)
    producer = Producer(kafka, "test")
    producer.send(SESSIONS.name, sessions.opened(), key=sessions.SESSION)
    producer.send(CONTROL.name, control.completed(0, at_ms=1))
    producer.close()
    return kafka


def test_show_says_what_it_left_out(cluster: KafkaSettings) -> None:
    shown = CliRunner().invoke(app, ["show", sessions.SESSION])
    assert shown.exception is None, shown.exception
    assert f"{sessions.SESSION}  policy" in shown.output
    assert "! skipped 7 unreadable records of sessions" in shown.output
    assert f"! incomplete: sessions[{PARTITION}]@7" in shown.output
    assert "upgrade" in shown.output
    records = CliRunner().invoke(app, ["show", sessions.SESSION, "--records"]).output
    listed = CliRunner().invoke(app, ["show"]).output
    for output in (records, listed):
        assert "! skipped 7 unreadable records of trajectories" in output


def test_the_display_goes_on_and_counts(cluster: KafkaSettings) -> None:
    with Observer(cluster, RunProgress("p", 10)) as observer:
        until(lambda: observer.poll().done == 1, "the step behind the garbage")
        until(lambda: len(observer.poll().skipped.notices) == 4, "both topics")
    assert observer.progress.skipped.garbage == {CONTROL.name: 7, FLEET.name: 7}


def test_the_check_of_a_run_counts(cluster: KafkaSettings, tmp_path: Path) -> None:
    skipped = Skipped()
    assert verify(cluster, tmp_path, skipped).clean
    assert skipped.garbage == {CONTROL.name: 7, SESSIONS.name: 7}


def test_observers_bury_nothing(cluster: KafkaSettings) -> None:
    CliRunner().invoke(app, ["show", sessions.SESSION])
    assert [buried(cluster, topic, partition) for topic, partition, _ in DAMAGED] == [[]] * 4
