"""File of the states of spilled sessions."""

import resource
from contextlib import suppress
from pathlib import Path

import pytest

from seamlessflow.consumers.trajectories.acting.spill_file import SpillFile
from seamlessflow.infra.errors import ENDS_PROCESS, SpillUnreadable


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
