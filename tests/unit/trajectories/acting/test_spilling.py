"""Bound on the memory of the open sessions of all partitions, and the file of their states."""

import resource
from contextlib import suppress
from pathlib import Path

import pytest

from seamlessflow.consumers.trajectories.acting.spilling import SpillFile, Spilling
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.errors import ENDS_PROCESS, SpillUnreadable
from seamlessflow.infra.telemetry.metrics import Metrics
from tests.builders.records.sessions import claimed, opened, started
from tests.builders.trajectories.spilled_states import SpilledStates

SESSIONS = 40


class Full(SpilledStates):
    """A store without room."""

    asked = 0

    def write(self, state: bytes) -> int:
        """Refuse the state."""
        self.asked += 1
        raise OSError("no space left on device")


def partitions(*sizes: int) -> dict[int, Partition]:
    """Return partitions with these numbers of idle sessions."""
    made = {number: Partition(number) for number in range(len(sizes))}
    for number, size in enumerate(sizes):
        events = [claimed(1), *(opened(session_id=f"{number}-{name}") for name in range(size))]
        for offset, event in enumerate(events):
            made[number].apply(event, offset, lambda _: "exact")
    return made


def in_memory(made: dict[int, Partition]) -> int:
    return sum(partition.sessions.bytes_in_memory for partition in made.values())


def test_sessions_are_spilled_until_they_fit_into_the_budget() -> None:
    made, store, metrics = partitions(SESSIONS, 2), SpilledStates(), Metrics()
    budget = in_memory(made) // 2

    spilling = Spilling(made, store, budget, metrics)
    spilling.look()
    spilling.measure()

    assert 0 < in_memory(made) <= budget
    assert len(made[1].sessions.in_memory) == 2
    assert sum(len(partition.sessions) for partition in made.values()) == SESSIONS + 2
    shown = {family.name: family.values for family in metrics.families()}
    assert shown["seamlessflow_manager_spilled_sessions"] == [({}, store.count)]


def test_nothing_is_spilled_within_the_budget() -> None:
    made, store = partitions(SESSIONS), SpilledStates()

    Spilling(made, store, in_memory(made), Metrics()).look()

    assert store.count == 0


def test_running_turns_may_take_more_than_the_budget() -> None:
    made, store = partitions(1), SpilledStates()
    made[0].apply(started("t", session_id="0-0"), 2, lambda _: "exact")

    Spilling(made, store, 0, Metrics()).look()

    assert store.count == 0


def test_a_store_without_room_is_asked_again_after_a_second() -> None:
    made, store = partitions(SESSIONS), Full()
    spilling = Spilling(made, store, 0, Metrics())

    spilling.look()
    spilling.look()
    assert (store.asked, len(made[0].sessions.in_memory)) == (1, SESSIONS)

    spilling.measure()
    spilling.look()
    assert store.asked == 2


def test_a_state_is_taken_as_it_was_written_once(tmp_path: Path) -> None:
    file = SpillFile(tmp_path / "new")
    numbers = [file.write(state) for state in (b"one", b"", bytes(3_000_000))]

    assert (file.count, file.held_bytes) == (3, 3_000_003)
    assert [file.take(number) for number in numbers] == [b"one", b"", bytes(3_000_000)]
    assert (file.count, file.held_bytes, file.reads) == (0, 0, 3)
    with pytest.raises(SpillUnreadable):
        file.take(numbers[0])
    file.close()


def test_a_dropped_state_is_gone(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    number = file.write(b"state")

    file.drop(number)

    assert (file.count, file.held_bytes, file.reads) == (0, 0, 0)
    file.close()


def test_nothing_of_the_file_stays_in_the_directory(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    file.write(b"state")

    assert list(tmp_path.iterdir()) == []
    file.close()


def test_a_directory_that_cannot_be_written_refuses_a_state(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="file"):
        SpillFile(tmp_path / "file").write(b"state")


def test_a_state_that_is_lost_ends_the_process(tmp_path: Path) -> None:
    """Another start folds the session from the log; giving it up would lose it."""
    with pytest.raises(ENDS_PROCESS):
        SpillFile(tmp_path).take(1)


def test_a_file_without_room_refuses_states_and_keeps_those_that_it_has(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    kept = {file.write(bytes([number]) * 200_000): number for number in range(8)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ, so that a write behind the limit is an error.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        for number in range(20):
            with suppress(OSError):
                kept[file.write(bytes([100 + number]) * 300_000)] = 100 + number
        assert len(kept) < 28
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    for place, number in kept.items():
        assert set(file.take(place)) == {number}
    file.close()
