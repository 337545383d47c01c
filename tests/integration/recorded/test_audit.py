"""The audit of a real log, once and while it grows."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import write_address
from seamlessflow.recorded.audit.audit import audit, follow
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES, Topic
from tests.builders.auditing.audited_log import trajectory
from tests.builders.garbage import append_newer, litter
from tests.builders.own_topics import SMALL, small
from tests.builders.records import commands, control, replies, sessions
from tests.builders.records.content import ids
from tests.waiting import until

LIMIT_S = 120
INTERRUPTED = 130
PARTITION = partition_of(sessions.SESSION, SMALL[SESSIONS.name].partitions)
TURN = (
    sessions.opened(),
    sessions.started(),
    sessions.dispatched(),
    sessions.completed(ids(3)),
)
END = (sessions.closed(), sessions.finalized())


@pytest.fixture
def cluster(kafka: KafkaSettings) -> KafkaSettings:
    create_topics(kafka, small(CONTROL, REPLIES, REQUESTS, SESSIONS, TRAJECTORIES))
    return kafka


def put(kafka: KafkaSettings, topic: Topic, *records: r.Record) -> None:
    producer = Producer(kafka, "test")
    for record in records:
        number = {SESSIONS.name: PARTITION, REQUESTS.name: PARTITION}.get(topic.name, 0)
        producer.send(topic.name, record, key=sessions.SESSION, partition=number)
    producer.flush(60)  # the first one waits until a new broker has loaded its coordinator
    producer.close()


def own_trajectory(last: int) -> r.Record:
    return r.Trajectory(**{**vars(trajectory(last=last)), "partition": PARTITION})


def test_an_audit_names_each_violation_by_its_place(
    cluster: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = commands.request_turn()
    put(cluster, REQUESTS, request, commands.assign_reward(command_id="lost"))
    put(cluster, SESSIONS, *TURN, *END)
    put(cluster, REPLIES, replies.answer(turn_id="a"))
    put(cluster, TRAJECTORIES, own_trajectory(last=5))
    put(cluster, CONTROL, control.admitted("g"))
    litter(cluster, SESSIONS, PARTITION, sessions.opened())
    clean = audit(cluster, tmp_path)
    assert clean.clean, clean.violations
    assert clean.result("commands").checked == clean.result("sessions").checked == 1
    assert clean.notices == [f"skipped 7 unreadable records of {SESSIONS.name}"]

    put(cluster, REPLIES, replies.answered("lost"))
    put(cluster, TRAJECTORIES, own_trajectory(last=4))
    put(cluster, CONTROL, control.committed(0, ["g", "g"]))
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", cluster.topic_prefix)
    shown = CliRunner().invoke(app, ["audit", "--json", "--trained", str(tmp_path)])
    assert shown.exit_code == 1, shown.output
    report = json.loads(shown.stdout)
    places = {
        (violation["check"], violation["topic"], violation["partition"], violation["offset"])
        for violation in report["violations"]
    }
    assert places == {
        ("commands", REPLIES.name, 0, 1),
        ("sessions", TRAJECTORIES.name, 0, 1),
        ("groups", CONTROL.name, 0, 1),
        ("tokens", CONTROL.name, 0, 1),
    }


def test_an_audit_that_could_not_read_what_counts_does_not_pass(
    cluster: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cluster, SESSIONS, *TURN)
    append_newer(cluster, CONTROL, 0)
    report = audit(cluster)
    assert (report.clean, report.complete) == (False, False)
    assert not any(result.violations for result in report.results)
    assert "unknown schema fingerprint" in report.notices[0]

    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", cluster.topic_prefix)
    shown = CliRunner().invoke(app, ["audit"])
    assert shown.exit_code == 1, shown.output
    assert "! incomplete: " in shown.output


def test_a_following_audit_judges_what_comes(cluster: KafkaSettings) -> None:
    put(cluster, SESSIONS, *TURN)
    ended: list[bool] = []
    reports = follow(cluster, every_s=0, stopping=lambda: bool(ended))
    assert next(reports).result("turns").checked == 1

    put(cluster, SESSIONS, *END)
    put(cluster, TRAJECTORIES, own_trajectory(last=5), own_trajectory(last=4))
    report = next(reports)
    assert (report.result("sessions").checked, report.clean) == (1, False)
    ended.append(True)
    assert next(reports, None) is None


def test_a_training_on_a_recording_is_found_by_its_directory(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    trained = kafka.model_copy(update={"topic_prefix": f"{kafka.topic_prefix}tis."})
    create_topics(kafka, small(TRAJECTORIES))
    create_topics(trained, small(CONTROL))
    put(kafka, TRAJECTORIES, trajectory())
    sections = {"trainer": {"source_prefix": kafka.topic_prefix}}
    settings = json.dumps(sections).encode()
    lineage = r.LineageStarted(at_ms=0, policy="p", lineage="a", step=0, settings=settings)
    put(trained, CONTROL, lineage, control.dropped("s"))
    write_address(tmp_path, kafka, "")
    folder = tmp_path / f"{kafka.topic_prefix}tis"

    shown = CliRunner().invoke(app, ["audit", "--json", "--out", str(folder)])
    assert shown.exit_code == 0, shown.output
    groups = json.loads(shown.stdout)["checks"]["groups"]
    assert (groups["checked"], groups["violations"]) == (1, 0)

    (tmp_path / "other" / "trained").mkdir(parents=True)
    refused = CliRunner().invoke(app, ["audit", "--out", str(tmp_path / "other")])
    assert "TOPIC_PREFIX instead of --out, and to audit it also --trained" in str(refused.exception)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_kafka_in_one_line(number: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    nowhere = {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": f"{HOST}:{free_port()}"}
    command = [sys.executable, "-m", "seamlessflow", "audit"]
    with (
        log.open("wb") as said,
        subprocess.Popen(command, env=os.environ | nowhere, stdout=said, stderr=said) as process,
    ):
        until(lambda: "waiting for Kafka at" in log.read_text(), "the wait", LIMIT_S)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == INTERRUPTED
    assert log.read_text().splitlines()[-1] == "seamlessflow: stopped as asked"
    assert "Traceback" not in log.read_text()
