"""Signs of life: whose heartbeat says that a process lives."""

from scheduler import membership
from tests.unit.scheduler import events as e

NOW, TIMEOUT = 100_000, 10_000


def test_a_process_that_gave_a_sign_joins() -> None:
    fleet = e.fleet_of(e.heartbeat("w", at_ms=NOW - 1), now_ms=NOW)

    assert [j.worker for j in membership.joined(e.fold(), fleet, NOW, TIMEOUT)] == ["w"]


def test_an_old_heartbeat_read_at_start_is_no_sign_of_life() -> None:
    fleet = e.fleet_of(e.heartbeat("w", at_ms=1), now_ms=NOW)

    assert not membership.joined(e.fold(), fleet, NOW, TIMEOUT)


def test_a_process_with_a_clock_behind_lives_once_its_heartbeat_moves() -> None:
    fleet = e.fleet_of(e.heartbeat("w", at_ms=1), e.heartbeat("w", at_ms=1_001), now_ms=NOW)

    assert membership.joined(e.fold(), fleet, NOW, TIMEOUT)


def test_a_process_that_says_it_failed_is_lost() -> None:
    fleet = e.fleet_of(e.heartbeat("w", at_ms=NOW, state="failed"), now_ms=NOW)

    assert [x.reason for x in membership.lost(e.fold(e.joined("w")), fleet, NOW, TIMEOUT)] == [
        "failed"
    ]


def test_a_silent_process_is_lost() -> None:
    fleet = e.fleet_of(e.heartbeat("w", at_ms=NOW), now_ms=NOW)
    state = e.fold(e.joined("w"))

    assert not membership.lost(state, fleet, NOW + TIMEOUT, TIMEOUT)
    late = membership.lost(state, fleet, NOW + TIMEOUT + 1, TIMEOUT)
    assert [x.reason for x in late] == ["no_heartbeat"]


def test_a_new_incarnation_replaces_the_old_one_before_it_joins() -> None:
    fleet = e.fleet_of(e.heartbeat("w", incarnation="2", at_ms=NOW), now_ms=NOW)
    before, after = e.fold(e.joined("w")), e.fold()

    assert [x.reason for x in membership.lost(before, fleet, NOW, TIMEOUT)] == ["replaced"]
    assert not membership.joined(before, fleet, NOW, TIMEOUT)
    assert [x.incarnation for x in membership.joined(after, fleet, NOW, TIMEOUT)] == ["2"]


def test_what_still_comes_from_a_replaced_incarnation_is_ignored() -> None:
    fleet = e.fleet_of(
        e.heartbeat("w", incarnation="1", at_ms=NOW),
        e.heartbeat("w", incarnation="2", at_ms=NOW + 1),
        e.heartbeat("w", incarnation="1", at_ms=NOW + 2),
        now_ms=NOW,
    )

    assert fleet.signs[("w", "rollout")].heartbeat.incarnation == "2"
