"""Managers while Kafka is away, or does not give them the records that they need to start."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Trajectory
from tests.builders.processes import SILENT
from tests.builders.trajectories.manager_system import manager_system
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
WAIT_MS = 4_000
END_S = 8.0
"""The 2 s of the runbook, and what a busy machine adds."""


def test_a_reward_that_could_not_be_sent_in_an_outage_still_counts(tmp_path: Path) -> None:
    """Holds invariant I8."""
    data = tmp_path / "kafka"
    with Broker(data, java=SHORT_LIVED) as broker, ExitStack() as later:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with manager_system(broker.settings, tmp_path / "tokenizer") as system:
            system.start_manager()
            system.open_session("s")
            system.close("s", await_reward_ms=WAIT_MS)
            due_ms = now_ms() + WAIT_MS
            broker.stop()
            until(lambda: now_ms() > due_ms + WAIT_MS, "the time to wait for the reward")
            later.enter_context(Broker(data, port, java=SHORT_LIVED))
            system.reward("s", 0.5)
            trajectory = system.expect("trajectories", Trajectory)

    assert [reward.value for reward in trajectory.rewards] == [0.5]


@pytest.mark.parametrize("wait_s", [300, 1])
def test_a_manager_that_cannot_read_the_fleet_waits_as_it_is_told_and_ends_when_asked(
    broker: KafkaSettings, tmp_path: Path, wait_s: float
) -> None:
    log = tmp_path / "log"
    with manager_system(broker, tmp_path / "tokenizer") as system:
        options = {
            "SEAMLESSFLOW_KAFKA__OPTIONS": SILENT,
            "SEAMLESSFLOW_KAFKA__WAIT_S": str(wait_s),
        }
        manager = system.start_manager(log=log, **options)
        if wait_s == 300:
            until(lambda: "fleet[0] is read to 0 of" in log.read_text(), "the wait")
            manager.terminate()
            assert manager.wait(END_S) == ExitStatus.PASSING
        else:
            assert manager.wait(60) == ExitStatus.PASSING
    assert "Traceback" not in log.read_text()
    assert "no Kafka broker answered" in log.read_text().splitlines()[-1]
