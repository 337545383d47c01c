"""A trainer that must end while its Kafka does not answer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.broker.broker import Broker
from infra.kafka.topics import create_topics
from schemas import records as r
from schemas.topics import CONTROL, FLEET, TRAJECTORIES
from tests.builders.trainer.models import write_tiny
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment

END_S = 60.0


@pytest.mark.slow
def test_it_ends_although_kafka_does_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", short_lived=True) as broker:
        create_topics(broker.settings, [CONTROL, FLEET, TRAJECTORIES])
        scheduler = ScriptedScheduler(broker.settings)
        settings = environment(broker.settings, write_tiny(tmp_path / "tiny"), tmp_path)
        with subprocess.Popen(
            [sys.executable, "-m", "trainer"], env=os.environ | settings, stderr=subprocess.PIPE
        ) as process:
            try:
                scheduler.wait_for_count(r.RoleAcquired, 1)
                scheduler.close()
                broker.stop()
                process.send_signal(signal.SIGTERM)
                _, words = process.communicate(timeout=END_S)
            finally:
                process.kill()
        assert process.returncode == 1
        assert b"ended before Kafka acknowledged all records" in words
        assert b"Traceback" not in words
