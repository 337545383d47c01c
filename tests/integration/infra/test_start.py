"""Processes that start before their Kafka: they wait, say so, and end when they are asked to."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from seamlessflow.demo.model import make_model
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.names import CONSUMER_LAG
from tests import http
from tests.builders.own_topics import SMALL
from tests.builders.processes import PROCESSES, settings
from tests.waiting import until

pytestmark = pytest.mark.slow
END_S = 8.0
"""The 2 s of the runbook, and what a busy machine adds; far below the wait for Kafka."""
LIMIT_S = 120.0
SERVICES = {"gateway", "manager", "rollout", "scheduler", "trainer", "agents", "reward-worker"}


@dataclass(frozen=True, slots=True)
class Starting:
    """Processes that were started, and their logs."""

    processes: Mapping[str, subprocess.Popen[bytes]]
    directory: Path

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def await_words(self, name: str, words: str) -> None:
        def is_written() -> bool:
            assert self.processes[name].poll() is None, self.log(name)
            return re.search(words, self.log(name)) is not None

        until(is_written, f"{words} of {name}")


@contextmanager
def started(kafka: KafkaSettings, directory: Path, *names: str) -> Iterator[Starting]:
    """Start these processes."""
    processes = {}
    for name in names:
        with (directory / f"{name}.log").open("wb") as log:
            environment = os.environ | settings(kafka, directory)
            processes[name] = subprocess.Popen(
                [sys.executable, "-m", name], env=environment, stderr=log
            )
    try:
        yield Starting(processes, directory)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def nowhere(wait_s: float) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_port()}", wait_s=wait_s)


def test_every_process_waits_for_kafka_says_so_then_starts_and_shows_its_lag(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        kafka = broker.settings
        create_topics(kafka, SMALL.values())  # a process without its topics would end
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    (tmp_path / "model").mkdir()
    make_model(tmp_path / "model", 0)
    with started(kafka, tmp_path, *PROCESSES) as starting:
        address = rf"127.0.0.1:{port} \(SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS\)"
        line = rf"waiting for Kafka at {address}: .+; \d+ s so far, 2\d\d s left"
        for name in PROCESSES:
            starting.await_words(name, line)
        with Broker(tmp_path / "kafka", port, java=SHORT_LIVED):
            for name, words in PROCESSES.items():
                starting.await_words(name, words)
            until(lambda: lag_shown(tmp_path) == SERVICES, "the lags of all processes")


def lag_shown(directory: Path) -> set[str]:
    """Return the kinds of processes whose metrics have the lag of a reader."""
    shown = set()
    for file in (directory / "data" / "metrics").iterdir():
        [target] = orjson.loads(file.read_bytes())
        text = http.get(f"http://{target['targets'][0]}/metrics").text
        if f"{CONSUMER_LAG}{{" in text:
            shown.add(target["labels"]["service"])
    return shown


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_that_waits_for_kafka_ends_when_it_is_asked_to(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    make_model(tmp_path / "model", 0)
    with started(nowhere(wait_s=300), tmp_path, name) as starting:
        starting.await_words(name, "waiting for Kafka")
        process = starting.processes[name]
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == ExitStatus.PASSING
        assert "ended before Kafka answered" in starting.log(name)
        assert "Traceback" not in starting.log(name)


def test_a_wait_that_is_over_ends_a_process_with_the_reason(tmp_path: Path) -> None:
    with started(nowhere(wait_s=0.5), tmp_path, "seamlessflow.consumers.trajectories") as starting:
        process = starting.processes["seamlessflow.consumers.trajectories"]
        assert process.wait(LIMIT_S) == ExitStatus.PASSING
        reason = starting.log("seamlessflow.consumers.trajectories").splitlines()[-1]
        assert "not started: no Kafka broker answered" in reason
        assert "SEAMLESSFLOW_KAFKA__WAIT_S" in reason
