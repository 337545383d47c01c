"""Open sessions, spilled and read back, against those that stay in memory."""

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.schemas.records import Record
from tests.builders.records.sessions import claimed, opened, rewarded, started
from tests.builders.trajectories.conversation import recorded_prefix
from tests.builders.trajectories.partition_log import log_of
from tests.builders.trajectories.random_events import STEPS, Step
from tests.builders.trajectories.spilled_states import SpilledStates

HISTORIES = st.lists(STEPS, min_size=20, max_size=60)


def read(into: Partition, *events: Record, start: int = 0) -> None:
    for offset, event in enumerate(events, start):
        into.apply(event, offset, lambda _: "arguments")


def spill(partition: Partition, store: SpilledStates) -> None:
    """Spill all sessions without a running turn."""
    while (session := partition.sessions.longest_idle()) is not None:
        partition.sessions.spill(session, 7, store)


@settings(deadline=None)
@given(HISTORIES)
def test_a_session_is_the_same_after_any_history(steps: list[Step]) -> None:
    partition = Partition(0)
    read(partition, *log_of(steps, finish=False).log)

    for session in partition.sessions.values():
        if not session.running:
            again = session_of(state_of(session))
            assert again == session
            assert list(again.turns) == list(session.turns)
            assert list(again.rewards) == list(session.rewards)


def test_a_forked_session_is_the_same() -> None:
    fork = recorded_prefix()
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(1), opened(session_id="s", fork=fork, fold_version=FOLD_VERSION))
    before = deepcopy(partition.sessions["s"])

    spill(partition, store)

    assert before.fork is not None and before.turns
    assert partition.sessions["s"] == before


@settings(deadline=None)
@given(HISTORIES, st.sets(st.integers(0, 80)))
def test_a_partition_is_the_same_wherever_sessions_were_spilled(
    steps: list[Step], places: set[int]
) -> None:
    history, store = log_of(steps, finish=False), SpilledStates()
    usual, spilling = Partition(0), Partition(0)
    for offset, event in enumerate(history.log):
        read(usual, event, start=offset)
        read(spilling, event, start=offset)
        if offset in places:
            spill(spilling, store)
            assert spilling.committable() == usual.committable()

    assert dict(spilling.sessions) == dict(usual.sessions)
    assert list(spilling.sessions) == list(usual.sessions)
    assert (store.count, store.held_bytes) == (0, 0)


def test_the_longest_untouched_session_is_the_next_to_be_spilled() -> None:
    partition = Partition(0)
    read(partition, claimed(1), *(opened(session_id=name) for name in "abc"))

    read(partition, rewarded(session_id="a"), start=4)

    longest = partition.sessions.longest_idle()
    assert longest is not None and longest.session_id == "b"


def test_a_session_with_a_running_turn_stays_in_memory() -> None:
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(1), opened(), started("t"))

    spill(partition, store)

    assert store.count == 0
    with pytest.raises(ValueError, match="running turn"):
        state_of(partition.sessions["s"])


def test_a_session_whose_events_are_held_stays_in_memory_until_it_is_unpinned() -> None:
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(1), opened())
    partition.sessions.pin("s")

    spill(partition, store)
    assert store.count == 0
    partition.sessions.unpin()
    spill(partition, store)

    assert store.count == 1


def test_memory_is_counted_while_a_session_is_in_it() -> None:
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(1), opened())
    before = partition.sessions.bytes_in_memory

    spill(partition, store)
    spilled = partition.sessions.bytes_in_memory
    partition.sessions["s"]

    assert (spilled, partition.sessions.bytes_in_memory) == (0, before)
    assert before > 0


def test_owners_know_of_a_spilled_session_what_they_ask_of_all() -> None:
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(3), opened(epoch=3))

    spill(partition, store)

    assert partition.sessions.spilled_due_ms("s") == 7
    assert partition.sessions.oldest == (1, 3)
    assert partition.sessions.in_memory == []
    assert "s" in partition.sessions and store.reads == 0


def test_a_session_that_is_dropped_leaves_nothing_in_the_store() -> None:
    partition, store = Partition(0), SpilledStates()
    read(partition, claimed(1), opened(), opened(session_id="other"))
    spill(partition, store)

    del partition.sessions["s"]
    partition.sessions.clear()

    assert (store.count, len(partition.sessions)) == (0, 0)
