"""A second command in the directory of a run, or on its topics, on a Kafka of one's own."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import has_address
from tests.e2e.runs.short_run import short_run, started
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 300
AGENT = """
import asyncio

async def run(task, session):
    await asyncio.sleep(3600)
"""


def test_a_second_training_in_the_same_directory_takes_nothing_over(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    config = short_run(tmp_path, AGENT, steps=2, modelled=True, kafka=kafka)
    with started(config, "train") as first:
        until(lambda: has_address(tmp_path / "out") or first.poll() is not None, "start", LIMIT_S)
        with started(config, "train") as second:
            said, _ = second.communicate(timeout=LIMIT_S)
        assert second.returncode == ExitStatus.LASTING
        assert f"another command runs there (process {first.pid} of" in said
        assert first.poll() is None
        first.terminate()
        first.wait(LIMIT_S)
    with started(config, "train") as third:
        until(lambda: has_address(tmp_path / "out") or third.poll() is not None, "resume", LIMIT_S)
        assert third.poll() is None
        third.terminate()
        third.wait(LIMIT_S)


def test_a_second_training_on_the_same_topics_takes_nothing_over(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    configs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        configs.append(short_run(tmp_path / name, AGENT, steps=2, modelled=True, kafka=kafka))
    out = tmp_path / "one" / "out"
    with started(configs[0], "train") as first:
        until(lambda: has_address(out) or first.poll() is not None, "start", LIMIT_S)
        with started(configs[1], "train") as second:
            said, _ = second.communicate(timeout=LIMIT_S)
        assert second.returncode == ExitStatus.LASTING
        assert f"another run writes to these topics (process {first.pid} of" in said
        assert first.poll() is None
        first.terminate()
        first.wait(LIMIT_S)
