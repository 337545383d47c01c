"""Bound on what partitions hold while they are taken over."""

from collections.abc import Collection
from typing import Any

from seamlessflow.consumers.trajectories.acting.takeover import ReadAhead, Takeover
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.topics import REQUESTS, SESSIONS
from tests.builders.records.commands import close_session
from tests.builders.records.sessions import claimed, closed, finalized, opened


class Paused:
    """A double of the readers that knows what is paused."""

    def __init__(self) -> None:
        self.numbers: dict[str, set[int]] = {REQUESTS.name: set(), SESSIONS.name: set()}

    def pause(self, topic: str, numbers: Collection[int], on: bool) -> None:
        """Note the partitions."""
        paused = self.numbers[topic]
        self.numbers[topic] = paused | set(numbers) if on else paused - set(numbers)


def takeover(number: int, progress: PartitionProgress | None = None) -> Takeover:
    return Takeover(Partition(number, progress or PartitionProgress()), reading=True)


def ahead(takeovers: dict[int, Takeover], readers: Paused) -> ReadAhead:
    made: Any = readers
    return ReadAhead(takeovers, made, most_commands=1, most_bytes=1)


def command(size: int = 0) -> Received:
    return Received(REQUESTS.name, 0, 0, 0, None, (), close_session(), size)


def emit(taken: Takeover) -> None:
    for offset, event in enumerate((claimed(1), opened(), closed(), finalized())):
        taken.partition.apply(event, offset, lambda _: "exact")
    session = taken.partition.sessions["s"]
    taken.partition.emit(session, trajectory(session, taken.partition.number))


def test_requests_wait_while_too_many_commands_do() -> None:
    takeovers, readers = {0: takeover(0), 1: takeover(1)}, Paused()
    reading = ahead(takeovers, readers)

    takeovers[0].commands += [command(), command()]
    reading.look()
    assert readers.numbers == {REQUESTS.name: {0, 1}, SESSIONS.name: set()}

    del takeovers[0]  # it is owned now
    reading.look()
    assert readers.numbers[REQUESTS.name] == set()


def test_requests_wait_while_their_bytes_are_too_many() -> None:
    takeovers, readers = {0: takeover(0)}, Paused()
    reading = ahead(takeovers, readers)

    takeovers[0].commands.append(command(size=1))
    reading.look()
    assert readers.numbers[REQUESTS.name] == set()

    takeovers[0].commands[0] = command(size=2)
    reading.look()
    assert readers.numbers[REQUESTS.name] == {0}


def test_a_first_start_reads_on_once_its_trajectories_are_committed() -> None:
    takeovers, readers = {0: takeover(0), 1: takeover(1, PartitionProgress(1, 0, 0, 0))}, Paused()
    reading = ahead(takeovers, readers)

    emit(takeovers[0])
    reading.look()
    assert readers.numbers[SESSIONS.name] == {0}

    takeovers[0].partition.note_committed(1, (0, PartitionProgress()))
    reading.look()
    assert readers.numbers[SESSIONS.name] == set()


def test_sessions_that_are_not_read_yet_are_paused_once_they_are() -> None:
    takeovers, readers = {0: takeover(0), 1: takeover(1)}, Paused()
    takeovers[1].reading = False
    reading = ahead(takeovers, readers)

    emit(takeovers[0])
    reading.look()
    assert readers.numbers[SESSIONS.name] == {0}

    takeovers[1].reading = True
    reading.look()
    assert readers.numbers[SESSIONS.name] == {0, 1}
