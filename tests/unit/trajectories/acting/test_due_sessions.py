"""Alarms of all sessions in one heap."""

from seamlessflow.consumers.trajectories.acting.due_sessions import Alarms


def test_the_earliest_alarm_of_a_session_counts() -> None:
    alarms = Alarms()
    alarms.set(0, "s", 30)
    alarms.set(0, "s", 10)
    alarms.set(0, "s", 20)

    assert alarms.next_ms == 10
    assert list(alarms.pop_due(9, 100)) == []
    assert list(alarms.pop_due(99, 100)) == [(0, "s")]
    assert list(alarms.pop_due(99, 100)) == []


def test_sessions_of_one_id_on_two_partitions_have_their_own() -> None:
    alarms = Alarms()
    alarms.set(1, "s", 20)
    alarms.set(0, "s", 10)

    assert list(alarms.pop_due(20, 100)) == [(0, "s"), (1, "s")]


def test_an_alarm_that_rang_can_be_set_again() -> None:
    alarms = Alarms()
    alarms.set(0, "s", 10)
    assert list(alarms.pop_due(10, 100)) == [(0, "s")]

    alarms.set(0, "s", 20)

    assert list(alarms.pop_due(20, 100)) == [(0, "s")]


def test_where_nothing_is_due_nothing_is_set() -> None:
    alarms = Alarms()
    alarms.set(0, "s", None)

    assert alarms.next_ms is None


def test_no_more_alarms_ring_at_once_than_asked_for() -> None:
    alarms = Alarms()
    for number in range(5):
        alarms.set(0, f"s{number}", number)

    assert [name for _, name in alarms.pop_due(9, 2)] == ["s0", "s1"]
    assert alarms.next_ms == 2
    assert [name for _, name in alarms.pop_due(9, 9)] == ["s2", "s3", "s4"]
