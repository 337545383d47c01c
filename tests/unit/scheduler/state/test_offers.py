"""Offers: the places at which sessions may go on from ended ones, as a fold of `control`."""

from typing import Any

import pytest

from seamlessflow.scheduler.state.offers import MOST_OFFERS, Offers
from seamlessflow.scheduler.state.state import from_json, to_json
from seamlessflow.schemas.records import GroupAdmitted, ParentPlace, Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold
from tests.builders.scheduler.offers import offering


def offers(*records: Record) -> Offers:
    return fold(control.claimed(), *records).offers


def places(folded: Offers) -> list[tuple[str, int]]:
    return [(offer.session_id, turn) for offer in folded.sessions for turn in offer.free_turns]


def admitted(group: str = "g", **changes: Any) -> GroupAdmitted:
    return control.admitted(group, **{"group_size": 2, **changes})


def forking(group: str, session: str, turn: int, **changes: Any) -> GroupAdmitted:
    place = ParentPlace(session_id=session, turn=turn, first_offset=100, parent_return=1.0)
    named = {"parent_session": session, "parent_turn": str(turn), "fork_at": place}
    return admitted(group, **named, **changes)


def test_a_session_of_a_ready_group_offers_its_turns_but_the_first() -> None:
    folded = offers(admitted(), offering("g", 1.0, 0.0))
    assert places(folded) == [("g.0.0", 2), ("g.0.0", 3), ("g.1.0", 2), ("g.1.0", 3)]
    (first, second) = folded.sessions
    assert (first.parent_return, first.task_id, first.first_offset) == (1.0, "task-0", 100)
    assert (second.parent_return, second.length, second.first_offset) == (0.0, 30, 101)


@pytest.mark.parametrize(
    "before",
    [
        admitted(purpose="eval"),
        admitted(purpose="explore"),
        admitted(parent_session="s", parent_turn="t"),
        forking("g", "s", 2),
        admitted("other"),
    ],
    ids=["an evaluation", "an exploration", "forks of a file", "live forks", "another group"],
)
def test_other_groups_offer_none(before: GroupAdmitted) -> None:
    assert places(offers(before, offering("g", 1.0, 0.0))) == []


def test_a_session_of_one_turn_offers_none() -> None:
    assert places(offers(admitted(), offering("g", 1.0, 0.0, turns=1))) == []


def test_a_result_of_a_release_that_recorded_less_offers_none() -> None:
    old = control.ready("g", sessions=("g.0.0",), returns=(1.0,), turns=(3,))
    assert places(offers(admitted(), old)) == []


def test_a_result_that_is_read_twice_offers_once() -> None:
    result = offering("g", 1.0)
    assert offers(admitted(), result, result) == offers(admitted(), result)


def test_a_turn_that_a_group_goes_on_from_is_offered_no_more() -> None:
    ready = [admitted(), offering("g", 1.0, 0.0)]
    fork = forking("f", "g.0.0", 2)
    assert places(offers(*ready, fork)) == [("g.0.0", 3), ("g.1.0", 2), ("g.1.0", 3)]
    assert offers(*ready, fork, fork) == offers(*ready, fork)
    both = offers(*ready, fork, forking("h", "g.0.0", 3))
    assert [offer.session_id for offer in both.sessions] == ["g.1.0"]


def test_an_admission_of_a_scheduler_that_was_replaced_takes_no_offer() -> None:
    ready = [admitted(), offering("g", 1.0)]
    newer = control.claimed(2, "b")
    assert offers(*ready, newer, forking("f", "g.0.0", 2)) == offers(*ready)


def test_samples_and_groups_are_counted_with_those_that_go_on() -> None:
    folded = offers(
        admitted("eval", purpose="eval"),
        admitted(),
        offering("g", 1.0, 0.0),
        forking("f", "g.0.0", 2, group_size=3),
    )
    assert (folded.samples, folded.groups) == (5, 2)
    assert (folded.forked_samples, folded.forked_groups) == (3, 1)


def test_the_newest_sessions_are_kept() -> None:
    many = [
        record
        for number in range(MOST_OFFERS + 1)
        for record in (admitted(f"g{number}"), offering(f"g{number}", 1.0))
    ]
    folded = offers(*many)
    assert len(folded.sessions) == MOST_OFFERS
    assert folded.sessions[0].session_id == "g1.0.0"


def test_a_snapshot_has_the_offers() -> None:
    state = fold(admitted(), offering("g", 1.0, 0.0), forking("f", "g.0.0", 2))
    restored = from_json(to_json(state))
    assert restored == state
    assert restored is not None and restored.first.ledger.groups["f"].fork_at is not None
