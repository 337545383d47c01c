"""The part of what was emitted that one transaction commits."""

from seamlessflow.consumers.trajectories.bus.commit_schedule import portion
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.partition import (
    Emission,
    Partition,
    PartitionProgress,
)
from seamlessflow.schemas.records import Record
from tests.builders.records.sessions import claimed, closed, finalized, opened


def log(*names: str) -> list[Record]:
    """Return a log of finalized sessions behind one that stays open."""
    events: list[Record] = [claimed(1), opened(session_id="open")]
    for name in names:
        events += (event(session_id=name) for event in (opened, closed, finalized))
    return events


def emitted(*names: str) -> Partition:
    partition = Partition(0)
    for offset, event in enumerate(log(*names)):
        folded = partition.apply(event, offset, lambda _: "exact")
        if folded.session is not None and folded.session.finalized_at_ms is not None:
            partition.emit(folded.session, trajectory(folded.session, partition.number))
    return partition


def test_a_transaction_has_no_more_records_than_asked_for() -> None:
    emissions, others = emitted("a", "b").emitted, emitted("c").emitted

    assert portion({0: emissions, 1: others}, 1, 10**9) == {0: tuple(emissions[:1])}
    assert portion({0: emissions, 1: others}, 9, 10**9) == {0: tuple(emissions), 1: tuple(others)}


def test_a_transaction_has_no_more_bytes_than_asked_for_but_one_record() -> None:
    emissions = emitted("a", "b").emitted

    assert portion({0: emissions}, 9, 1) == {0: tuple(emissions[:1])}
    assert portion({0: emissions}, 9, emissions[0].size + emissions[1].size - 1) == {
        0: tuple(emissions[:1])
    }


def test_offsets_are_committed_without_any_trajectory() -> None:
    nothing: list[Emission] = []

    assert portion({0: nothing}, 1, 1) == {0: ()}


def test_the_next_owner_emits_exactly_what_a_part_did_not_cover() -> None:
    names = ("a", "b", "c")
    partition = emitted(*names)
    for count in range(len(names) + 1):
        _, progress = partition.committable(count)

        later = Partition(0, PartitionProgress.decode(progress.encode()))
        session_ids = []
        for offset, event in list(enumerate(log(*names)))[max(0, progress.rebuild) :]:
            folded = later.apply(event, offset, lambda _: "exact")
            ended = folded.session is not None and folded.session.finalized_at_ms is not None
            if ended and offset >= progress.covered and folded.session is not None:
                session_ids.append(folded.session.session_id)
        assert session_ids == list(names[count:])


def test_a_part_is_rebuilt_from_the_oldest_session_that_it_does_not_cover() -> None:
    partition = emitted("a", "b")
    partition.read_again_to, partition.next_request = 0, 0
    partition.sessions.clear()

    assert partition.committable(1)[1] == PartitionProgress(1, 5, 7, 1)
    assert partition.committable()[1] == PartitionProgress(1, 8, 8, 1)
