"""`seamlessflow train` on a Kafka of the user's that is away: how it waits, and how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.network.addresses import free_port
from tests.builders.run_files import run_values
from tests.waiting import until

pytestmark = pytest.mark.slow
END_S = 8.0
"""The 2 s of the runbook, and what a busy machine adds; far below the wait for Kafka."""
LIMIT_S = 120
INTERRUPTED = 130


def training(folder: Path, **kafka: Any) -> subprocess.Popen[bytes]:
    """Start a training on a port where no Kafka is."""
    away = {"bootstrap_servers": f"127.0.0.1:{free_port()}", **kafka}
    values = {**run_values(folder), "kafka": away}
    (folder / "run.yaml").write_text(json.dumps(values, default=str))  # JSON is YAML too
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "seamlessflow", "train", "--config", "run.yaml"],
            cwd=folder,
            stdout=log,
            stderr=log,
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_wait_for_kafka(number: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with training(tmp_path, wait_s=300) as process:
        until(lambda: "waiting for Kafka at" in log.read_text(), "the wait", LIMIT_S)
        process.send_signal(number)
        assert process.wait(END_S) == INTERRUPTED
    assert "stopped as asked" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_kafka_that_is_away_too_long_ends_it_in_passing(tmp_path: Path) -> None:
    with training(tmp_path, wait_s=0.5) as process:
        assert process.wait(LIMIT_S) == ExitStatus.PASSING
    assert "seamlessflow: no Kafka broker answered at" in (tmp_path / "log").read_text()


def test_a_wrong_setting_ends_it_for_good(tmp_path: Path) -> None:
    with training(tmp_path, wait_s=-1) as process:
        assert process.wait(LIMIT_S) == ExitStatus.LASTING
    assert "kafka.wait_s" in (tmp_path / "log").read_text()
