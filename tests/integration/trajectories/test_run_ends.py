"""At the end of a run no session of it stands open, whoever gave its calls up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, SESSIONS
from tests.builders.records import control
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import POLICY, ManagerSystem, manager_system

pytestmark = pytest.mark.kafka

LIMIT_S = 120


@pytest.fixture
def system(broker: KafkaSettings, tmp_path: Path) -> Iterator[ManagerSystem]:
    with manager_system(broker, tmp_path) as made:
        yield made


def test_a_manager_that_ends_behind_its_run_leaves_no_session_of_it_open(
    system: ManagerSystem,
) -> None:
    manager = system.start_manager()
    system.open_session("run-3.1.0", group_id="run-3", sample=1, attempt=0)
    system.open_session("of-a-service")
    system.send(CONTROL.name, control.finished(5, policy=POLICY, at_ms=now_ms()))
    system.announce("w0", 3)
    # Behind this the manager has read the end of the run.
    asked = system.generate(system.request("of-a-service", [message("user", "key 7")]).turn_id)
    system.complete(asked, "code 3")
    system.finished(asked.turn_id)
    # A call that its agent gave up long ago.
    system.open_session("run-3.2.0", group_id="run-3", sample=2, attempt=0)

    manager.terminate()
    assert manager.wait(LIMIT_S) == 0
    closed = {
        item.record.session_id: item.record.reason
        for item in read_topic(system.kafka, SESSIONS, Skipped())
        if isinstance(item.record, r.SessionClosed)
    }
    reason = "its run has finished"
    assert closed == {"run-3.1.0": reason, "run-3.2.0": reason}
