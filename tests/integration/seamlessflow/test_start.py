"""The start of a run on a real broker: what it waits for is named when it does not come."""

from pathlib import Path

import pytest
from rich.console import Console

from infra.kafka.topics.creation import create_topics
from infra.settings import KafkaSettings
from seamlessflow.config import RestartsSection
from seamlessflow.config_file import parse
from seamlessflow.processes.launcher import Launcher, NotReady
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import System
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
    assert "not within 0.5 s" in str(late.value)
