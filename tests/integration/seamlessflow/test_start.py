"""The start of a run on a real broker: what it waits for is named when it does not come."""

import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from seamlessflow.config import RestartsSection
from seamlessflow.config_file import parse
from seamlessflow.infra.errors import BrokerLate, BrokerUnusable, ExitStatus
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.launcher import BROKER, Launcher, NotReady
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import System, kafka_to_run_on
from seamlessflow.watching.display import PlainDisplay
from tests.builders.own_topics import SMALL

WORKERS = [{"id": "a", "tags": ["rollout", "train"]}, {"id": "b"}]


def test_a_start_that_takes_too_long_names_who_is_missing_and_the_setting(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    create_topics(kafka, SMALL.values())
    config = parse(
        {
            "out": tmp_path,
            "kafka": kafka.model_dump(),
            "workers": WORKERS,
            "rollout": {"engine": "scripted"},
            "agents": {"command": ["true"]},
            "start_timeout_s": 0.5,
        }
    )
    display, supervisor = PlainDisplay(Console()), Supervisor(RestartsSection(), print)
    with Launcher(tmp_path / "logs", Stop(), supervisor) as launcher:
        system = System(config, kafka, launcher, display)
        # Without a trainer there never are weights, and without them no worker serves.
        with system.running(), pytest.raises(NotReady) as late:
            system.wait_until_ready()
    assert late.value.what.startswith(
        "start_timeout_s: no weights of the trainer, no rollout of a, no rollout of b"
    )
    assert "not within 0.5 s; set a larger start_timeout_s" in str(late.value)


def test_an_embedded_kafka_that_is_late_names_the_setting_and_may_be_tried_again(
    tmp_path: Path,
) -> None:
    config = parse({"out": tmp_path, "start_timeout_s": 0.05})
    display, supervisor = PlainDisplay(Console()), Supervisor(RestartsSection(), print)
    with (
        Launcher(tmp_path / "logs", Stop(), supervisor) as launcher,
        pytest.raises(BrokerLate) as late,
        kafka_to_run_on(config, launcher, display),
    ):
        pass
    assert "not ready within 0.05 s: set a larger start_timeout_s, or see" in str(late.value)
    assert "\n" not in str(late.value)
    assert late.value.process_status(ready=False) is ExitStatus.PASSING


def test_an_embedded_kafka_that_ended_is_named_with_its_log(tmp_path: Path) -> None:
    config = parse({"out": tmp_path})
    display, supervisor = PlainDisplay(Console()), Supervisor(RestartsSection(), print)
    with (
        Launcher(tmp_path / "logs", Stop(), supervisor) as launcher,
        pytest.raises(BrokerUnusable) as ended,
        kafka_to_run_on(config, launcher, display) as kafka,
    ):
        os.kill(launcher.pids[BROKER], signal.SIGKILL)
        # Only the launcher starts it again, and that does not look while a wait goes on.
        find_cluster(kafka, stopping=launcher.kafka_ended)
    assert str(ended.value) == (
        f"embedded Kafka broker in {tmp_path / 'kafka'}: it ended with exit status -9; "
        f"its log is {tmp_path / 'kafka' / 'broker.log'}"
    )
    assert ended.value.process_status(ready=False) is ExitStatus.PASSING
