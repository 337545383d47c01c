"""Trainers that must end while their Kafka does not answer, or gives no records."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from tests.builders.own_topics import small
from tests.builders.processes import SILENT
from tests.builders.records import control
from tests.builders.trainer.models import write_tiny
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses
from tests.waiting import until

END_S = 60.0


@pytest.mark.slow
def test_it_ends_although_kafka_does_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        create_topics(broker.settings, small(CONTROL, FLEET, TRAJECTORIES))
        scheduler = ScriptedScheduler(broker.settings)
        settings = environment(broker.settings, write_tiny(tmp_path / "tiny"), tmp_path)
        with TrainerProcesses(settings) as processes:
            scheduler.wait_for_count(r.RoleAcquired, 1)
            scheduler.close()
            broker.stop()
            for status, words in processes.ask_to_end():
                assert status == ExitStatus.PASSING
                assert "ended before Kafka acknowledged all records" in words
                assert "Traceback" not in words


@pytest.mark.slow
def test_asked_to_end_before_it_has_read_what_is_recorded_it_may_be_started_again(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    producer = Producer(kafka, "test")
    producer.send(CONTROL.name, control.lost())
    producer.close()
    settings = environment(kafka, write_tiny(tmp_path / "tiny"), tmp_path)
    settings["SEAMLESSFLOW_KAFKA__OPTIONS"] = SILENT
    log = tmp_path / "log"
    with (
        log.open("wb") as words,
        subprocess.Popen(
            [sys.executable, "-m", "seamlessflow.trainer"], env=os.environ | settings, stderr=words
        ) as process,
    ):
        until(lambda: "control is read to 0 of 1" in log.read_text(), "the wait", END_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == ExitStatus.PASSING
    assert "ended before Kafka answered" in log.read_text()
    assert "Traceback" not in log.read_text()
