"""Sessions that a manager ended, under the next one: used ids, calls, emitted trajectories."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.consumers.trajectories.sessions.partition import PartitionProgress
from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Reward, SessionTerms, Trajectory
from seamlessflow.schemas.topics import REQUESTS, SESSIONS
from tests.builders.records import sessions
from tests.builders.records.commands import assign_reward, close_session, open_session
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import (
    POLICY,
    ManagerSystem,
    manager_system,
    opening,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka
FINALIZED = 25


@pytest.fixture
def system(broker: KafkaSettings, tmp_path: Path) -> Iterator[ManagerSystem]:
    with manager_system(broker, tmp_path) as made:
        yield made


def test_calls_of_a_finalized_session_are_repeated_after_a_takeover(system: ManagerSystem) -> None:
    """Holds invariant I4."""
    first = opening("s", idempotency_key="k1")
    reward = {"reward": Reward(value=0.5), "idempotency_key": "k2"}
    manager = system.start_manager()
    assert system.call(open_session, "s", **first) == "200"
    assert system.call(assign_reward, "s", **reward) == "200"
    assert system.call(close_session, "s", idempotency_key="k3") == "200"
    await_rebuild_behind(system, system.expect("trajectories", Trajectory))
    os.kill(manager.pid, signal.SIGKILL)
    system.start_manager()

    assert system.call(open_session, "s", **opening("s")) == "409 session_exists"
    assert system.call(open_session, "s", **first) == "200"
    assert system.call(assign_reward, "s", **reward) == "200"
    assert system.call(close_session, "s", idempotency_key="k3") == "200"
    other = opening("s", idempotency_key="other")
    assert system.call(open_session, "s", **other) == "409 session_exists"
    assert system.call(assign_reward, "s", reward=Reward(value=0.6)) == "409 session_closed"


def test_calls_by_name_are_repeated_after_a_takeover_and_change_no_later_session(
    system: ManagerSystem,
) -> None:
    """Holds invariant I4."""
    reward = {"reward": Reward(value=0.5), "idempotency_key": "k1"}
    manager = system.start_manager()
    system.announce("w0", slot=0)
    begin(system, "s")
    assert system.call(assign_reward, "s", **reward) == "200"
    assert system.call(close_session, "s", idempotency_key="k2") == "200"
    ended = system.expect("trajectories", Trajectory)
    begin(system, "s")
    await_rebuild_behind(system, ended)
    os.kill(manager.pid, signal.SIGKILL)
    system.start_manager()

    assert system.call(assign_reward, "s", **reward) == "200"
    assert system.call(close_session, "s", idempotency_key="k2") == "200"
    later = system.reward_and_close("s", 1.0)
    assert later.session_id != ended.session_id
    assert [entry.value for entry in later.rewards] == [1.0]


def test_a_consumer_group_without_offsets_emits_no_trajectory_again(
    system: ManagerSystem, tmp_path: Path
) -> None:
    """Holds invariant I4."""
    before, log = system.start_manager(), tmp_path / "log"
    for session_id in ("s1", "s2", "s3"):
        system.open_session(session_id)
    emitted = {system.reward_and_close(name, 1.0).session_id for name in ("s1", "s2")}
    before.terminate()
    before.wait(30)
    system.processes.remove(before)

    # Another group stands for one whose offsets were lost.
    system.start_manager(log=log, SEAMLESSFLOW_MANAGER__GROUP="another")

    assert system.reward_and_close("s3", 1.0).session_id == "s3"
    assert emitted == {"s1", "s2"}
    assert system.take("trajectories") == []
    assert "another has no offset of requests" in log.read_text()


def test_a_first_start_on_a_long_log_commits_on_its_way(system: ManagerSystem) -> None:
    """Holds invariant I4."""
    names = {f"s{number}" for number in range(FINALIZED)}
    for kind in (sessions.opened, sessions.closed, sessions.finalized):
        for name in names:
            system.producer.send(SESSIONS.name, kind(session_id=name, epoch=0), key=name)
    system.producer.flush(30)
    first = system.start_manager(member="0", SEAMLESSFLOW_MANAGER__TRANSACTION_RECORDS="1")
    session_ids = [system.expect("trajectories", Trajectory).session_id]
    os.kill(first.pid, signal.SIGKILL)
    first.wait()

    system.start_manager(member="0")
    session_ids += [
        system.expect("trajectories", Trajectory).session_id for _ in range(FINALIZED - 1)
    ]

    assert sorted(session_ids) == sorted(names)
    assert system.call(open_session, "s0", **opening("s0")) == "409 session_exists"
    assert system.take("trajectories") == []


def begin(system: ManagerSystem, name: str) -> None:
    """Have the first turn of a new session of this name sampled."""
    terms = SessionTerms(policy=POLICY)
    asked = system.request(name, [message("user", "a")], terms=terms)
    system.complete(system.generate(asked.turn_id), "x")
    assert system.finished(asked.turn_id).status == 200


def await_rebuild_behind(system: ManagerSystem, ended: Trajectory) -> None:
    """Wait until a takeover would not read the session's events."""
    look = Reader(system.kafka, "look", group=ManagerSection().group)
    place = REQUESTS.name, ended.partition

    def behind() -> bool:
        _, metadata = look.committed([place])[place]
        return PartitionProgress.decode(metadata).rebuild > ended.last_offset

    until(behind, "a commit behind the session")
    look.close()
