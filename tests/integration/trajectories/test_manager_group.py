"""Several managers share the sessions; joining, leaving and dying ones lose and repeat nothing."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import (
    DEADLINE_S,
    ManagerSystem,
    manager_system,
)

pytestmark = pytest.mark.kafka
SESSIONS = 24
TURNS = 3


@pytest.fixture
def system(broker: KafkaSettings, tmp_path: Path) -> Iterator[ManagerSystem]:
    with manager_system(broker, tmp_path) as made:
        yield made


class Crowd:
    """Agents that each take a few turns, and the worker that answers them."""

    def __init__(self, made: ManagerSystem) -> None:
        self.system = made
        self.histories = {f"s{n}": [message("user", f"key {n}")] for n in range(SESSIONS)}
        self.asked: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.next_beat = 0.0

    def open(self) -> None:
        for session_id in self.histories:
            self.system.open_session(session_id)

    def ask(self) -> None:
        """Request the next turn of every agent that does not wait."""
        for session_id, history in self.histories.items():
            if session_id not in self.asked.values() and self.done[session_id] < TURNS:
                self.asked[self.system.request(session_id, history).turn_id] = session_id

    def step(self) -> None:
        """Complete the worker's turns and apply the gateway's replies."""
        for record in self.system.take("prompts"):
            if isinstance(record, r.GenerateTurn) and record.turn_id in self.asked:
                self.system.complete(record, f"code {record.session_id[1:]}")
        for record in self.system.take("replies"):
            if isinstance(record, r.ReplyFinished) and record.turn_id in self.asked:
                assert record.status == 200, record
                assert record.message is not None
                session_id = self.asked.pop(record.turn_id)
                self.histories[session_id] += [record.message, message("user", "again")]
                self.done[session_id] += 1

    def until(self, turns: int) -> None:
        """Continue until all agents together have had this many turns."""
        deadline = time.monotonic() + 3 * DEADLINE_S
        while self.done.total() < turns:
            assert time.monotonic() < deadline, self.done
            if time.monotonic() > self.next_beat:
                self.system.beat("w0", 3)
                self.next_beat = time.monotonic() + 1
            self.ask()
            self.step()

    def end(self) -> dict[str, r.Trajectory]:
        return {name: self.system.reward_and_close(name, 1.0) for name in self.histories}


def test_managers_come_and_go_and_every_turn_is_answered_and_kept_once(
    system: ManagerSystem,
) -> None:
    """Holds invariant I7."""
    first = system.start_manager(member="0")
    system.announce("w0", 3)
    crowd = Crowd(system)
    crowd.open()
    crowd.until(SESSIONS)

    system.start_manager(member="1")
    crowd.until(2 * SESSIONS)
    os.kill(first.pid, signal.SIGKILL)
    crowd.until(TURNS * SESSIONS)

    trajectories = crowd.end()
    repeated = [
        record for record in system.take("trajectories") if isinstance(record, r.Trajectory)
    ]
    assert {t.turns for t in trajectories.values()} == {TURNS}
    assert all(not t.masked_tokens for t in trajectories.values())
    assert repeated == []


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_of_two_managers_of_one_name_the_newer_goes_on(
    system: ManagerSystem, tmp_path: Path, protocol: str
) -> None:
    log = tmp_path / "log"
    older = system.start_manager(
        member="same", log=log, SEAMLESSFLOW_KAFKA__GROUP_PROTOCOL=protocol
    )
    system.open_session("before")
    os.kill(older.pid, signal.SIGSTOP)
    system.processes.remove(older)
    newer = system.start_manager(member="same", SEAMLESSFLOW_KAFKA__GROUP_PROTOCOL=protocol)
    try:
        system.open_session("meanwhile")
    finally:
        os.kill(older.pid, signal.SIGCONT)

    assert older.wait(DEADLINE_S) == ExitStatus.LASTING
    last = log.read_text().splitlines()[-1]
    assert "has started under the same name, 'same' (SEAMLESSFLOW_MANAGER__SLOT)" in last
    assert system.reward_and_close("before", 1.0).session_id == "before"
    assert system.reward_and_close("meanwhile", 1.0).session_id == "meanwhile"
    assert newer.poll() is None


def test_managers_have_different_names_unless_they_are_given_one(system: ManagerSystem) -> None:
    managers = [system.start_manager(member="") for _ in range(2)]
    for session_id in ("s1", "s2"):
        system.open_session(session_id)

    assert system.reward_and_close("s1", 1.0).session_id == "s1"
    assert system.reward_and_close("s2", 1.0).session_id == "s2"
    assert [manager.poll() for manager in managers] == [None, None]
