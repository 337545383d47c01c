"""Bound on the memory of the open sessions of all partitions."""

from seamlessflow.consumers.trajectories.acting.spilling import Spilling
from seamlessflow.consumers.trajectories.sessions.partition import Partition
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
    return sum(one.sessions.bytes_in_memory for one in made.values())


def test_sessions_are_spilled_until_they_fit_into_the_budget() -> None:
    made, store, metrics = partitions(SESSIONS, 2), SpilledStates(), Metrics()
    budget = in_memory(made) // 2

    spilling = Spilling(made, store, budget, metrics)
    spilling.look()
    spilling.measure()

    assert 0 < in_memory(made) <= budget
    assert len(made[1].sessions.in_memory) == 2
    assert sum(len(one.sessions) for one in made.values()) == SESSIONS + 2
    shown = {one.name: one.values for one in metrics.families()}
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
