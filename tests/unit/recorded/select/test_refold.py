"""Sessions folded again from the events of a partition."""

from collections.abc import Iterable
from typing import Any

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Record, Trajectory
from tests.builders.records.sessions import claimed, closed, finalized, opened, rewarded, started

CHOSEN: dict[str, Any] = {"session_id": "chosen"}
OTHER: dict[str, Any] = {"session_id": "other"}
LOG: list[Record] = [
    claimed(),
    opened(**CHOSEN),
    opened(**OTHER),
    started(**CHOSEN),
    closed(**OTHER),
    finalized(**OTHER),
    claimed(2, "next"),
    closed(**CHOSEN),
    closed(**CHOSEN, epoch=2, status="truncated"),
    finalized(**CHOSEN, epoch=2),
]


def refold(**criteria: Iterable[str]) -> Refold:
    chosen = {name: frozenset(values) for name, values in criteria.items()}
    return Refold(LoggedPartition(5), SessionSelection(**chosen))  # type: ignore[arg-type]


def made(fold: Refold, events: list[Record], start: int = 0) -> list[Trajectory]:
    ended = [fold.apply(event, start + place) for place, event in enumerate(events)]
    return [trajectory(session, 5) for session in ended if session is not None]


def test_sessions_that_are_not_chosen_leave_nothing_behind() -> None:
    fold = refold(sessions=["chosen"])
    assert [session.session_id for session in made(fold, LOG)] == ["chosen"]
    assert fold.open == 0
    assert fold.rebuild_from == (len(LOG), 2)


def test_names_of_the_selection_that_a_session_has_are_found() -> None:
    fold = refold(sessions=["chosen", "typo"], groups=["g"], tasks=["other"])
    made(fold, LOG)
    assert fold.selection.missing(fold.matched) == ["session typo", "group g", "task other"]
    fold = refold(groups=["chosen", "typo"])
    made(fold, LOG)
    assert fold.selection.missing(fold.matched) == ["group typo"]


def test_events_of_a_manager_whose_claim_was_over_do_not_count() -> None:
    _, chosen = made(refold(), LOG)
    assert chosen.status == "truncated"
    assert chosen.last_offset == 9


def test_an_open_session_says_from_where_it_can_be_folded_again() -> None:
    fold = refold()
    made(fold, LOG[:7])
    assert (fold.open, fold.rebuild_from) == (1, (1, 1))
    offset, epoch = fold.rebuild_from
    again = Refold(LoggedPartition(5, epoch=epoch, position=offset))
    assert made(again, LOG[offset:], offset)[-1] == made(refold(), LOG)[-1]


def test_sessions_without_their_beginning_are_counted() -> None:
    fold = refold()
    assert made(fold, LOG[3:], 3) == []
    assert fold.beginnings_gone == 2


def test_a_session_whose_beginning_another_manager_wrote_again_counts_once() -> None:
    fold = refold()
    assert len(made(fold, [*LOG, finalized(**CHOSEN, epoch=1), rewarded(**CHOSEN)])) == 2
    assert fold.beginnings_gone == 0
