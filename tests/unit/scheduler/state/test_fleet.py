"""The fleet: heartbeats that keep a process a member, and contact with Kafka."""

from seamlessflow.scheduler.decisions import membership
from seamlessflow.scheduler.decisions.membership import OUTAGE_MS, Contact
from seamlessflow.scheduler.state.fleet import Fleet
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.scheduler.inputs import fleet_of, fold

NOW, TIMEOUT = 100_000, 10_000
CONTACT = Contact(0, NOW)


def test_a_process_that_gave_a_sign_joins() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW - 1), now_ms=NOW)

    assert [j.worker for j in membership.joined(fold(), fleet, NOW, TIMEOUT)] == ["w"]


def test_an_old_heartbeat_read_at_start_is_no_sign_of_life() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=1), now_ms=NOW)

    assert not membership.joined(fold(), fleet, NOW, TIMEOUT)


def test_a_process_with_a_clock_behind_lives_once_its_heartbeat_moves() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=1), heartbeat("w", at_ms=1_001), now_ms=NOW)

    assert membership.joined(fold(), fleet, NOW, TIMEOUT)


def test_a_process_that_says_it_failed_is_lost() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW, state="failed"), now_ms=NOW)

    assert reasons(fleet, CONTACT) == ["failed"]


def test_a_process_that_ended_in_order_leaves_at_once_and_says_so() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW, state="ended"), now_ms=NOW)

    assert reasons(fleet, CONTACT) == ["ended"]
    assert not membership.joined(fold(), fleet, NOW, TIMEOUT)


def test_a_process_without_heartbeats_is_lost() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW), now_ms=NOW)

    assert not reasons(fleet, Contact(0, NOW + TIMEOUT))
    assert reasons(fleet, Contact(0, NOW + TIMEOUT + 1)) == ["no_heartbeat"]


def test_a_process_is_not_lost_while_kafka_is_away() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW), now_ms=NOW)

    assert not reasons(fleet, CONTACT, now_ms=NOW + 10 * TIMEOUT)


def test_after_an_outage_a_process_has_the_full_time_again() -> None:
    fleet = fleet_of(heartbeat("w", at_ms=NOW), now_ms=NOW)
    back_ms = NOW + 10 * TIMEOUT
    back = CONTACT.renewed(back_ms)
    on_time = listened(back, back_ms + TIMEOUT)

    assert not reasons(fleet, back, back_ms)
    assert not reasons(fleet, on_time, back_ms + TIMEOUT)
    late = back_ms + TIMEOUT + 1
    assert reasons(fleet, on_time.renewed(late), late) == ["no_heartbeat"]


def test_a_pause_too_short_for_an_outage_counts_as_waiting() -> None:
    assert CONTACT.renewed(NOW + OUTAGE_MS).waited_ms(NOW) == OUTAGE_MS
    assert CONTACT.renewed(NOW + OUTAGE_MS + 1).waited_ms(NOW) == 0


def test_contact_is_lost_until_kafka_answers() -> None:
    later = NOW + OUTAGE_MS + 1

    assert CONTACT.lost(later)
    assert not CONTACT.renewed(later).lost(later)


def test_a_new_incarnation_replaces_the_old_one_before_it_joins() -> None:
    fleet = fleet_of(heartbeat("w", incarnation="2", at_ms=NOW), now_ms=NOW)
    before, after = fold(control.joined("w")), fold()

    assert reasons(fleet, CONTACT) == ["replaced"]
    assert not membership.joined(before, fleet, NOW, TIMEOUT)
    assert [x.incarnation for x in membership.joined(after, fleet, NOW, TIMEOUT)] == ["2"]


def test_what_still_comes_from_a_replaced_incarnation_is_ignored() -> None:
    fleet = fleet_of(
        heartbeat("w", incarnation="1", at_ms=NOW),
        heartbeat("w", incarnation="2", at_ms=NOW + 1),
        heartbeat("w", incarnation="1", at_ms=NOW + 2),
        now_ms=NOW,
    )

    assert fleet.heartbeats[("w", "rollout")].heartbeat.incarnation == "2"


def reasons(fleet: Fleet, contact: Contact, now_ms: int = NOW) -> list[str]:
    """Return the reasons for which the process of "w" is lost."""
    lost = membership.lost(fold(control.joined("w")), fleet, contact, now_ms, TIMEOUT)
    return [record.reason for record in lost]


def listened(contact: Contact, until_ms: int) -> Contact:
    """Return the contact after an answer every second."""
    for now_ms in range(contact.last_ms, until_ms, 1_000):
        contact = contact.renewed(now_ms)
    return contact.renewed(until_ms)
